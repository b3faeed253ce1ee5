"""Forecasts of workloads as external metrics, which a HorizontalPodAutoscaler of any kind can scale on."""
