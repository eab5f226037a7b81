"""The engine of create_pretraining_data: text -> records of masked sentence pairs."""
