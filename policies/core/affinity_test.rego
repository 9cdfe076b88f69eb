package core.affinity_test

import data.core.affinity as policy
import data.fixtures

required := "requiredDuringSchedulingIgnoredDuringExecution"

preferred := "preferredDuringSchedulingIgnoredDuringExecution"

own := {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}

# with_affinity is the input of a pod with the label app=db.
with_affinity(affinity) := object.union(
	fixtures.input_for(fixtures.gpus(1), [object.union(fixtures.whole, {"topologyKeys": ["example.com/block"]})]),
	{"object": {"metadata": {"labels": {"app": "db"}}, "spec": {"affinity": affinity}}},
)

# in_each_list returns the affinity with the term in one list of terms only, by the field of the term.
in_each_list(term) := {
	sprintf("spec.affinity.podAffinity.%s[0]", [required]): {"podAffinity": {required: [term]}},
	sprintf("spec.affinity.podAntiAffinity.%s[0]", [required]): {"podAntiAffinity": {required: [term]}},
	sprintf("spec.affinity.podAffinity.%s[0].podAffinityTerm", [preferred]): {"podAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term}]}},
	sprintf("spec.affinity.podAntiAffinity.%s[0].podAffinityTerm", [preferred]): {"podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term}]}},
}

denied_fields(affinity) := fields if {
	fields := {denial.field | some denial in policy.deny} with input as with_affinity(affinity)
}

test_ordinary_affinity if {
	every affinity in in_each_list(own) {
		denied_fields(affinity) == set()
	}
	denied_fields({}) == set()
}

test_other_namespaces if {
	every selector in [{}, {"matchLabels": {"kubernetes.io/metadata.name": "thesis"}}] {
		every field, affinity in in_each_list(object.union(own, {"namespaceSelector": selector})) {
			denied_fields(affinity) == {sprintf("%s.namespaceSelector", [field])}
		}
	}
	every field, affinity in in_each_list(object.union(own, {"namespaces": ["thesis", "other"]})) {
		denied_fields(affinity) == {sprintf("%s.namespaces", [field])}
	}
}

test_own_namespace if {
	every term in [object.union(own, {"namespaces": ["thesis"]}), object.union(own, {"namespaces": []}), object.union(own, {"namespaceSelector": null})] {
		every affinity in in_each_list(term) { denied_fields(affinity) == set() }
	}
}

anti(term) := {"podAntiAffinity": {required: [own, term]}}

test_topology_keys if {
	every key in ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "example.com/block"] {
		denied_fields(anti(object.union(own, {"topologyKey": key}))) == set()
	}
	every key in ["kubernetes.io/os", "topology.kubernetes.io/region", "example.com/other", ""] {
		field := sprintf("spec.affinity.podAntiAffinity.%s[1].topologyKey", [required])
		denied_fields(anti(object.union(own, {"topologyKey": key}))) == {field}
	}
}

# What attracts pods, or is only preferred, keeps no pod off a node.
test_topology_keys_of_other_terms if {
	os := object.union(own, {"topologyKey": "kubernetes.io/os"})
	denied_fields({"podAffinity": {required: [os], preferred: [{"podAffinityTerm": os}]}, "podAntiAffinity": {preferred: [{"podAffinityTerm": os}]}}) == set()
}

test_number_of_terms if {
	some_terms := {"podAntiAffinity": {required: [own | some _ in numbers.range(1, 16)], preferred: [{"podAffinityTerm": own} | some _ in numbers.range(1, 16)]}}
	denied_fields(some_terms) == set()
	denied_fields(object.union(some_terms, {"podAffinity": {required: [own]}})) == {"spec.affinity"}
}
