"""The voice cascade as one Walk Graph: ear | speech recognition | language model | speech. Real weights, on a CPU."""
