# Keeps the affinity of pods within their project. A required anti-affinity term keeps other
# pods off the nodes of its pod, and a pod with it preempts the others there, as far as it
# reaches. Within the project the webhook limits the term to pods of the same creator, and warns
# of one that is about others.
package core.affinity

# terms are the pod's terms in their order, each with its field.
terms := array.concat(required, preferred)

required := [{"field": sprintf("spec.affinity.%s.requiredDuringSchedulingIgnoredDuringExecution[%d]", [kind, i]), "term": term} |
	some kind in ["podAffinity", "podAntiAffinity"]
	some i, term in input.object.spec.affinity[kind].requiredDuringSchedulingIgnoredDuringExecution
]

preferred := [{"field": sprintf("spec.affinity.%s.preferredDuringSchedulingIgnoredDuringExecution[%d].podAffinityTerm", [kind, i]), "term": weighted.podAffinityTerm} |
	some kind in ["podAffinity", "podAntiAffinity"]
	some i, weighted in input.object.spec.affinity[kind].preferredDuringSchedulingIgnoredDuringExecution
]

# Each rule names the first term only, since a pod can have very many.
deny contains {
	"msg": "the term reaches pods of other namespaces, and so of other projects",
	"field": sprintf("%s.namespaceSelector", [found[0].field]),
	"fix": "leave it out: the term then reaches the pods of its own namespace",
} if {
	found := [t | some t in terms; selects_namespaces(t.term)]
	count(found) > 0
}

# An empty selector selects all namespaces.
selects_namespaces(term) if {
	selector := term.namespaceSelector
	selector != null
}

deny contains {
	"msg": sprintf("the term reaches pods of namespace %s, which is not the project's", [found[0].name]),
	"field": sprintf("%s.namespaces", [found[0].field]),
	"fix": sprintf("leave it out, or name only %s", [input.project.namespace]),
} if {
	found := [{"field": t.field, "name": name} |
		some t in terms
		some name in t.term.namespaces
		name != input.project.namespace
	]
	count(found) > 0
}

# By another label, such as that of the operating system, one pod keeps all nodes.
deny contains {
	"msg": sprintf("required anti-affinity by the node label %s keeps other pods off more nodes than one pod may", [found[0].key]),
	"field": sprintf("%s.topologyKey", [found[0].field]),
	"fix": sprintf("use one of %s, or ask the cluster administrators to add the label to spec.topologyKeys of the node pool", [concat(", ", topology_keys)]),
} if {
	found := [{"field": t.field, "key": key} |
		some t in required
		startswith(t.field, "spec.affinity.podAntiAffinity.")
		key := t.term.topologyKey
		not key in topology_keys
	]
	count(found) > 0
}

# topology_keys are the labels of a node, a zone and a rack, and those that the project's node pools list.
topology_keys := array.concat(
	["kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"],
	sort({key | some pool in input.nodePools; some key in pool.topologyKeys}),
)

# A scheduler compares each waiting pod with the terms of all running ones.
deny contains {
	"msg": sprintf("the pod has %d affinity terms, of which at most %d are allowed", [count(terms), maximum_terms]),
	"field": "spec.affinity",
	"fix": "select the pods by fewer terms, for example by one label with several values",
} if {
	count(terms) > maximum_terms
}

maximum_terms := 32
