package sluice.lib.ask_test

import data.fixtures
import data.sluice.lib.ask

test_gpu if {
	ask.gpu with input.workload as fixtures.gpus(1)
	not ask.gpu with input.workload as fixtures.cpu
}

test_said if {
	ask.said == "2 GPUs" with input.workload as fixtures.gpus(2)
	ask.said == "0.3 of a GPU" with input.workload as fixtures.share(0.3)
	ask.said == "8192 MiB of a GPU" with input.workload as fixtures.memory(8192)
	ask.said == "2 times the slice 3g.20gb" with input.workload as fixtures.slices(2, "3g.20gb")
}

test_preemptible if {
	ask.preemptible with input.workload.type as "train"
	not ask.preemptible with input.workload.type as "inference"
	not ask.preemptible with input.workload.type as "interactive"
	ask.preemptible with input.workload.type as "interactive"
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
	not ask.preemptible with input.workload.type as "inference"
		with input.object.spec.priorityClassName as "sluice-interactive-preemptible"
}

test_of_daemon_set if {
	ask.of_daemon_set with input.workload.owner as {"group": "apps", "kind": "DaemonSet"}
	not ask.of_daemon_set with input.workload.owner as {"group": "batch", "kind": "Job"}
}
