"""The interactive screen of `spazio top`: its keys, its view, and the screen of one node."""
