# The GPU request of a pod.
package sluice.lib.request

import data.sluice.lib.format
import data.sluice.lib.quotas

# includes_gpu: the pod requests GPUs by a resource or an annotation.
includes_gpu if not input.workload.form in {"None", ""}

# from_daemon_set: a DaemonSet created the pod and runs one on every node.
from_daemon_set if {
	input.workload.owner.group == "apps"
	input.workload.owner.kind == "DaemonSet"
}

# preemptible: the pod can be preempted, so it can exceed the guarantee of its project.
preemptible if input.workload.type == "train"

preemptible if {
	input.workload.type == "interactive"
	input.object.spec.priorityClassName == "sluice-interactive-preemptible"
}

# description returns the request for messages: "0.3 of a GPU".
description := format.gpus(input.workload.devices * 1000) if input.workload.form == "Whole"

description := format.times(input.workload.devices, format.gpus(quotas.milli(input.workload.share))) if {
	input.workload.form == "Share"
}

description := format.times(input.workload.devices, sprintf("%d MiB of a GPU", [input.workload.memoryMiB])) if {
	input.workload.form == "Memory"
}

description := format.times(input.workload.devices, sprintf("the slice %s", [input.workload.migProfile])) if {
	input.workload.form == "MIG"
}

description := format.times(input.workload.devices, "a replica of a GPU") if input.workload.form == "Replica"
