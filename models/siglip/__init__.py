"""SigLIP's picture encoder."""
