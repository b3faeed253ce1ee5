"""Finds processes that run but do nothing, and ends them, so that their supervisor starts them again."""
