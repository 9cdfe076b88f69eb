package sluice.lib.format_test

import data.sluice.lib.format

test_gpus if {
	format.gpus(1000) == "1 GPU"
	format.gpus(2000) == "2 GPUs"
	format.gpus(1500) == "1.5 GPUs"
	format.gpus(333) == "0.333 of a GPU"
	format.gpus_or_none(0) == "no GPUs"
	format.gpus_or_none(500) == "0.5 of a GPU"
}

test_times if {
	format.times(1, "a slice") == "a slice"
	format.times(3, "a slice") == "3 times a slice"
}

test_list if {
	format.list([]) == "none"
	format.list(["a"]) == "a"
	format.list(["a", "b", "c"]) == "a, b and c"
}

test_amount if {
	format.amount("cpu", 2000) == "2"
	format.amount("cpu", 3984) == "3984m"
	format.amount("memory", 17179869184) == "16Gi"
	format.amount("memory", 1099511627776) == "1Ti"
	format.amount("memory", 1073741825) == "1073741825"
	format.amount("hugepages-2Mi", 2097152) == "2Mi"
	format.amount("cpu", 0) == "0"
}
