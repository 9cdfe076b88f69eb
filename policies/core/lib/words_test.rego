package sluice.lib.words_test

import data.sluice.lib.words

test_gpus if {
	words.gpus(1000) == "1 GPU"
	words.gpus(2000) == "2 GPUs"
	words.gpus(1500) == "1.5 GPUs"
	words.gpus(333) == "0.333 of a GPU"
	words.amount(0) == "no GPUs"
	words.amount(500) == "0.5 of a GPU"
}

test_thousandths_are_exact if {
	words.milli(0.3) == 300
	words.milli(0.001) == 1
	words.milli(99999) == 99999000
}

test_each if {
	words.each(1, "a slice") == "a slice"
	words.each(3, "a slice") == "3 times a slice"
}

test_list if {
	words.list([]) == "none"
	words.list(["a"]) == "a"
	words.list(["a", "b", "c"]) == "a, b and c"
}
