"""How right forecasts were."""
