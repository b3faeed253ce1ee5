"""Past prices and interruptions of markets: computed from the history, published on the bus."""
