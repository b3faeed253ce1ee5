"""What commands show in the terminal: screens and tables, and the data behind them."""
