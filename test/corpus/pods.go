// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

type (
	object = map[string]any
	list   = []any
)

// repeated returns n values.
func repeated(n int, value func(int) any) list {
	values := make(list, n)
	for i := range values {
		values[i] = value(i)
	}
	return values
}

// keyed returns n values by numbered keys.
func keyed(n int, key string, value any) object {
	values := make(object, n)
	for i := range n {
		values[fmt.Sprintf(key, i)] = value
	}
	return values
}

// numbered returns n containers that differ in their names.
func numbered(n int, container object) list {
	return repeated(n, func(i int) any {
		other := maps.Clone(container)
		other["name"] = fmt.Sprint("c", i)
		return other
	})
}

// same returns a function that always returns a value.
func same(value any) func(int) any { return func(int) any { return value } }

// podChanges change a plain pod, by name. Each is a class of its own: another part of a pod that is long, deep or
// wide, or that reads like something else.
var podChanges = map[string]func(pod, metadata, spec, container object){
	"labels":          func(_, m, _, _ object) { m["labels"] = keyed(40_000, "l%d", "v") },
	"annotations":     func(_, m, _, _ object) { m["annotations"] = keyed(10_000, "a%d", "v") },
	"long annotation": func(_, m, _, _ object) { m["annotations"] = object{"a": strings.Repeat("x", 2_900_000)} },
	"decisions of its own": func(_, m, _, _ object) {
		m["annotations"] = object{"sluice.dev/decisions": strings.Repeat(`[{"a":`, 40_000)}
	},
	"fractions":         func(_, m, _, _ object) { m["annotations"] = object{"gpu-fraction": "1e-999999999"} },
	"negative fraction": func(_, m, _, _ object) { m["annotations"] = object{"gpu-fraction": "-0.5"} },
	"digits of a fraction": func(_, m, _, _ object) {
		m["annotations"] = object{"gpu-fraction": "0." + strings.Repeat("1", 200_000)}
	},
	"memory beyond all": func(_, m, _, _ object) { m["annotations"] = object{"gpu-memory": strings.Repeat("9", 4_000)} },
	"node pools": func(_, m, _, _ object) {
		m["annotations"] = object{"sluice.dev/node-pools": strings.Repeat("dgx,", 50_000)}
	},
	"runtime": func(_, m, _, _ object) {
		m["annotations"] = object{"sluice.dev/max-runtime": strings.Repeat("9", 100_000) + "h"}
	},
	"terminal escapes": func(_, m, _, _ object) {
		m["labels"] = object{"sluice.dev/workload-type": "\x1b[2J\x1b]0;owned\x07\r\u202e"}
	},
	"a message in a name": func(_, m, _, _ object) {
		m["labels"] = object{"sluice.dev/workload-type": "train\nnamespace thesis is deleted; contact root@evil"}
	},
	"long name": func(_, m, _, _ object) { m["name"] = strings.Repeat("n", 1_000_000) },
	"owners": func(_, m, _, _ object) {
		m["ownerReferences"] = repeated(20_000, func(i int) any {
			return object{"kind": "Job", "name": strconv.Itoa(i), "uid": "u", "apiVersion": "batch/v1"}
		})
	},
	"controllers": func(_, m, _, _ object) {
		m["ownerReferences"] = repeated(4_000, same(object{"kind": "Job", "apiVersion": "batch/v1", "name": "a", "uid": "u", "controller": true}))
	},
	"managed fields": func(_, m, _, _ object) { m["managedFields"] = list{object{"manager": "m", "fieldsV1": nested(2_000)}} },
	"finalizers": func(_, m, _, _ object) {
		m["finalizers"] = repeated(100_000, func(i int) any { return fmt.Sprint("example.org/", i) })
	},
	"containers":         func(_, _, s, c object) { s["containers"] = numbered(5_000, c) },
	"more containers":    func(_, _, s, c object) { s["containers"] = repeated(30_000, same(c)) },
	"as many as allowed": func(_, _, s, c object) { s["containers"], s["initContainers"] = numbered(500, c), numbered(500, c) },
	"no containers":      func(_, _, s, _ object) { s["containers"] = list{} },
	"init containers":    func(_, _, s, c object) { s["initContainers"] = numbered(4_000, c) },
	"GPUs of each container": func(_, _, s, c object) {
		c["resources"] = object{"limits": object{"nvidia.com/gpu": "1"}}
		s["containers"] = numbered(4_000, c)
	},
	"variables": func(_, _, _, c object) {
		c["env"] = repeated(80_000, func(i int) any { return object{"name": fmt.Sprint("V", i)} })
	},
	"variables of containers": func(_, _, s, c object) {
		c["env"] = repeated(4_900, same(object{"name": "A", "value": "b"}))
		s["containers"] = numbered(16, c)
	},
	"device variables": func(_, _, _, c object) {
		c["env"] = repeated(4_900, same(object{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}))
	},
	"long variable": func(_, _, _, c object) {
		c["env"] = list{object{"name": "NVIDIA_VISIBLE_DEVICES", "value": strings.Repeat(",", 2_900_000)}}
	},
	"sources of variables": func(_, _, _, c object) {
		c["envFrom"] = repeated(50_000, same(object{"configMapRef": object{"name": "a"}}))
	},
	"arguments":         func(_, _, _, c object) { c["args"] = repeated(300_000, same("a")) },
	"long argument":     func(_, _, _, c object) { c["args"] = list{strings.Repeat("\u0000", 480_000)} },
	"ports":             func(_, _, _, c object) { c["ports"] = repeated(60_000, same(object{"containerPort": 1})) },
	"resources":         func(_, _, _, c object) { c["resources"] = object{"limits": keyed(50_000, "example.org/r%d", "1")} },
	"small quantity":    func(_, _, _, c object) { c["resources"] = object{"limits": object{"nvidia.com/gpu": "1e-999999"}} },
	"large quantity":    func(_, _, _, c object) { c["resources"] = object{"limits": object{"nvidia.com/gpu": "1e999999"}} },
	"negative quantity": func(_, _, _, c object) { c["resources"] = object{"limits": object{"nvidia.com/gpu": "-1"}} },
	"long quantity": func(_, _, _, c object) {
		c["resources"] = object{"limits": object{"cpu": strings.Repeat("1", 1_000_000)}}
	},
	"quantity without a type": func(_, _, _, c object) { c["resources"] = object{"limits": object{"nvidia.com/gpu": list{1}}} },
	"claims": func(_, _, s, c object) {
		s["resourceClaims"] = repeated(30_000, same(object{"name": "gpu"}))
		c["resources"] = object{"claims": repeated(4_000, same(object{"name": "gpu"}))}
	},
	"mounts": func(_, _, _, c object) {
		c["volumeMounts"] = repeated(40_000, same(object{"name": "a", "mountPath": "/dev"}))
	},
	"long mount path": func(_, _, _, c object) {
		c["volumeMounts"] = list{object{"name": "a", "mountPath": strings.Repeat("/", 2_900_000)}}
	},
	"volumes": func(_, _, s, _ object) {
		s["volumes"] = repeated(40_000, same(object{"name": "a", "emptyDir": object{}}))
	},
	"slashes of a host path": func(_, _, s, _ object) {
		s["volumes"] = list{object{"name": "a", "hostPath": object{"path": strings.Repeat("/", 2_900_000)}}}
	},
	"dots of host paths": func(_, _, s, _ object) {
		s["volumes"] = repeated(600, same(object{"name": "a", "hostPath": object{"path": strings.Repeat("/.", 2_000)}}))
	},
	"projected volumes": func(_, _, s, _ object) {
		s["volumes"] = list{object{"name": "a", "projected": object{"sources": repeated(40_000, same(object{"secret": object{"name": "a"}}))}}}
	},
	"ephemeral volumes": func(_, _, s, _ object) {
		s["volumes"] = repeated(4_000, same(object{"name": "a", "ephemeral": object{"volumeClaimTemplate": object{"metadata": object{"labels": keyed(4, "l%d", "v")}, "spec": object{}}}}))
	},
	"tolerations": func(_, _, s, _ object) { s["tolerations"] = repeated(40_000, same(object{"operator": "Exists"})) },
	"terms of affinity": func(_, _, s, _ object) {
		s["affinity"] = requiredNodes(repeated(4_000, same(object{"matchExpressions": list{object{"key": "a", "operator": "In", "values": list{"b"}}}})))
	},
	"values of affinity": func(_, _, s, _ object) {
		s["affinity"] = requiredNodes(list{object{"matchExpressions": repeated(200, same(object{"key": "a", "operator": "In", "values": repeated(900, same("b"))}))}})
	},
	"preferences of affinity": func(_, _, s, _ object) {
		s["affinity"] = object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": repeated(40_000, same(object{"weight": 1}))}}
	},
	"node selector": func(_, _, s, _ object) { s["nodeSelector"] = keyed(50_000, "l%d", "v") },
	"topology spread": func(_, _, s, _ object) {
		s["topologySpreadConstraints"] = repeated(30_000, same(object{"maxSkew": 1, "labelSelector": object{"matchLabels": object{"a": "b"}}}))
	},
	"host aliases": func(_, _, s, _ object) {
		s["hostAliases"] = repeated(300, same(object{"ip": "1.1.1.1", "hostnames": repeated(900, same("h"))}))
	},
	"scheduling gates":   func(_, _, s, _ object) { s["schedulingGates"] = repeated(60_000, same(object{"name": "g"})) },
	"deep unknown field": func(_, _, s, _ object) { s["unknown"] = nested(9_000) },
	"wide unknown field": func(p, _, _, _ object) { p["unknown"] = repeated(4_900, same(repeated(100, same(object{})))) },
	"keys of an unknown map": func(_, _, s, _ object) {
		s["unknown"] = object{strings.Repeat("k", 1_000_000): strings.Repeat("k", 1_000_000)}
	},
	"texts for containers":   func(_, _, s, _ object) { s["containers"] = strings.Repeat("c", 100_000) },
	"a list for a container": func(_, _, s, _ object) { s["containers"] = list{list{list{"c"}}, 1, nil, true} },
	"numbers for texts":      func(_, m, s, _ object) { m["labels"] = list{1}; s["schedulerName"], s["nodeSelector"] = 1e300, "x" },
	"priority and preemption": func(_, _, s, _ object) {
		s["priority"], s["priorityClassName"] = 2_000_000_000, strings.Repeat("p", 100_000)
	},
}

// nested returns objects in objects.
func nested(depth int) any {
	value := any("deep")
	for range depth {
		value = object{"a": value}
	}
	return value
}

func requiredNodes(terms list) object {
	return object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": terms}}}
}

// podTexts are pods as the API server never writes them.
var podTexts = map[string]string{
	"duplicate keys":        `{"metadata": {"name": "a", "name": "b"}, "spec": {"containers": [], "containers": [{"name": "c", "image": "i", "image": "j"}], "hostPID": false, "hostPID": true}}`,
	"invalid UTF-8":         "{\"metadata\": {\"name\": \"\xff\xfe\", \"labels\": {\"\xc3\x28\": \"\xed\xa0\x80\"}}, \"spec\": {\"containers\": [{\"name\": \"c\"}]}}",
	"half of a surrogate":   `{"metadata": {"name": "\ud800"}, "spec": {"containers": [{"name": "\udc00\ud800"}]}}`,
	"exponents":             `{"spec": {"priority": 1e999999999, "containers": [{"name": "c"}], "terminationGracePeriodSeconds": -1e-999999999}}`,
	"digits":                `{"spec": {"priority": ` + strings.Repeat("9", 1_000_000) + `, "containers": [{"name": "c"}]}}`,
	"brackets":              `{"spec": ` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + `}`,
	"the first half":        `{"metadata": {"name": "a"}, "spec": {"containers": [`,
	"a list":                `[{"metadata": {}}]`,
	"null":                  `null`,
	"nothing":               ``,
	"only text":             `"` + strings.Repeat("x", 1_000_000) + `"`,
	"null in all places":    `{"metadata": null, "spec": {"containers": null, "volumes": null, "affinity": null}}`,
	"keys of a merge patch": `{"metadata": {"$patch": "delete", "__proto__": {}}, "spec": {"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "c", "$patch": "replace"}]}}`,
}

// Pods returns the JSON of hostile pods of namespace thesis, by name.
func Pods() map[string][]byte {
	raw := make(map[string][]byte)
	for name, text := range podTexts {
		raw[name] = []byte(text)
	}
	for name, change := range podChanges {
		container := object{"name": "main", "image": "a"}
		metadata, spec := object{"name": "hostile", "namespace": "thesis"}, object{"containers": list{container}}
		pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
		change(pod, metadata, spec, container)
		text, err := json.Marshal(pod)
		if _, ok := raw[name]; ok || err != nil {
			panic(fmt.Sprintf("pod %q is there twice, or is no JSON: %v", name, err))
		}
		raw[name] = text
	}
	return raw
}
