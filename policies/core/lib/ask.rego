# The GPU request of a pod, and its description for messages.
package sluice.lib.ask

import data.sluice.lib.words

# gpu: the pod requests GPUs by a resource or an annotation.
gpu if not input.workload.form in {"None", ""}

# of_daemon_set: the pod belongs to a DaemonSet, which runs on every node.
of_daemon_set if {
	input.workload.owner.group == "apps"
	input.workload.owner.kind == "DaemonSet"
}

# preemptible: the pod can be preempted, and can therefore exceed the guarantee of its
# project.
preemptible if input.workload.type == "train"

preemptible if {
	input.workload.type == "interactive"
	input.object.spec.priorityClassName == "sluice-interactive-preemptible"
}

# counted_classes are the priority classes of non-preemptible pods. The quota of the
# guarantee selects pods by them.
counted_classes := ["sluice-interactive", "sluice-inference"]

# said describes the request: "0.3 of a GPU".
said := words.gpus(input.workload.devices * 1000) if input.workload.form == "Whole"

said := words.each(input.workload.devices, words.gpus(words.milli(input.workload.share))) if {
	input.workload.form == "Share"
}

said := words.each(input.workload.devices, sprintf("%d MiB of a GPU", [input.workload.memoryMiB])) if {
	input.workload.form == "Memory"
}

said := words.each(input.workload.devices, sprintf("the slice %s", [input.workload.migProfile])) if {
	input.workload.form == "MIG"
}

said := words.each(input.workload.devices, "a replica of a GPU") if input.workload.form == "Replica"
