"""Terminal output of commands: screens and tables, and the data that they show."""
