# METADATA
# title: Checkpoint annotation for long training
# description: >-
#   Refuses training with GPUs that may run longer than some hours without an annotation that says where its checkpoints are. Training
#   is preemptible and ends at its time limit, so long training that cannot continue loses its work.
# custom:
#   misses: whether the program writes checkpoints
package checkpoint_annotation

import data.sluice.lib.request

deny contains {
	"msg": sprintf("training that may run longer than %v hours says where its checkpoints are", [input.parameters.hours]),
	"field": sprintf("metadata.annotations[%s]", [input.parameters.annotation]),
	"fix": sprintf("set it to the path or address of the checkpoints, or shorten the run with the annotation sluice.dev/max-runtime: %vh", [input.parameters.hours]),
} if {
	request.includes_gpu
	input.workload.type == "train"
	is_long
	object.get(input.object, ["metadata", "annotations", input.parameters.annotation], "") == ""
}

# 0 is no limit. The author's limit only shortens the project's.
is_long if {
	every limit in limits {
		limit > input.parameters.hours * 3600
	}
}

limits := [limit |
	some limit in [input.workload.maxRuntimeSeconds, input.project.limits.train.maxRuntimeSeconds]
	limit > 0
]
