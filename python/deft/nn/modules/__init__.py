"""The layers; deft.nn has them all."""
