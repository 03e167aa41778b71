"""Defines the steps of programs, a module for each kind."""
