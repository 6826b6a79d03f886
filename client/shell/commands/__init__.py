"""What the commands do: one module for each kind of them; importing a module enters its commands into the table."""
