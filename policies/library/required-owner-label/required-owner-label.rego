# METADATA
# title: Required owner label
# description: >-
#   Refuses pods with GPUs without a label that names who answers for them. Sluice records who created a pod by itself,
#   in the annotation sluice.dev/created-by; this label is for a person or a cost center that the author chooses.
package required_owner_label

import data.sluice.lib.request

deny contains {
	"msg": sprintf("pods with GPUs have the label %s", [input.parameters.label]),
	"field": "metadata.labels",
	"fix": sprintf("set the label %s to who answers for the pod", [input.parameters.label]),
} if {
	request.includes_gpu
	value == ""
}

deny contains {
	"msg": sprintf("%s is no valid owner", [value]),
	"field": sprintf("metadata.labels[%s]", [input.parameters.label]),
	"fix": sprintf("set a value that matches %s", [pattern]),
} if {
	request.includes_gpu
	value != ""
	not regex.match(pattern, value)
}

default value := ""

value := input.object.metadata.labels[input.parameters.label]

pattern := object.get(input.parameters, "pattern", ".")
