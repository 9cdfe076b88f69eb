package sluice.lib.request_test

import data.fixtures
import data.sluice.lib.request

test_includes_gpu if {
	request.includes_gpu with input.workload as fixtures.gpus(1)
	not request.includes_gpu with input.workload as fixtures.cpu
}

test_description if {
	request.description == "2 GPUs" with input.workload as fixtures.gpus(2)
	request.description == "0.3 of a GPU" with input.workload as fixtures.share(0.3)
	request.description == "8192 MiB of a GPU" with input.workload as fixtures.memory(8192)
	request.description == "2 times the slice 3g.20gb" with input.workload as fixtures.slices(2, "3g.20gb")
}

test_preemptible if {
	request.preemptible with input.workload.type as "train"
	not request.preemptible with input.workload.type as "inference"
	not request.preemptible with input.workload.type as "interactive"
	request.preemptible with input.workload.type as "interactive"
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
	not request.preemptible with input.workload.type as "inference"
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_from_daemon_set if {
	request.from_daemon_set with input.workload.owner as {"group": "apps", "kind": "DaemonSet"}
	not request.from_daemon_set with input.workload.owner as {"group": "batch", "kind": "Job"}
}
