"""The sections of the settings, a module a topic; `section` has what all are made of."""
