"""What every service process shares, and how each service is composed."""
