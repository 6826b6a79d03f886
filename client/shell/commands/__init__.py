"""The commands: one module for each kind; importing a module enters its commands into the table."""
