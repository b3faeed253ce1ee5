"""The messages of the contract, by who publishes them."""
