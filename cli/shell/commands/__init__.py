"""The commands, one module for each kind. Importing a module registers its commands."""
