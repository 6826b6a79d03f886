"""The state machine: its input is bytes and the time, and its output is bytes. It uses no socket, clock or thread, and
receives its source of randomness from its owner.
"""
