"""Pieces of networks that several families share."""
