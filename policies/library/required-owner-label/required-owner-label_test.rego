package required_owner_label_test

import data.required_owner_label

denials(labels, gpus) := found if {
	found := required_owner_label.deny with input.object as {"metadata": {"labels": labels}}
		with input.workload as {"form": gpus}
		with input.parameters as {"label": "owner", "pattern": "^[a-z]+$"}
}

test_missing if count(denials({}, "Whole")) == 1

test_wrong if count(denials({"owner": "Anna 1"}, "Whole")) == 1

test_right if count(denials({"owner": "anna"}, "Whole")) == 0

test_without_gpu if count(denials({}, "None")) == 0
