// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// hostileValues are what members can write into annotations so that an honest policy, which passes it to a built-in function as v, takes
// long in one call. The first is for 20 annotations of about 12 KiB, else it is for a single one of 250 KiB.
var hostileValues = map[string]struct{ condition, value string }{
	"units.parse_bytes":                {`units.parse_bytes(v) > 1`, "1e999999"},
	"units.parse":                      {`units.parse(v) > 1`, "1e999999Gi"},
	"units.parse of digits":            {`units.parse(v) > 1`, strings.Repeat("9", 250_000)},
	"to_number":                        {`round(to_number(v)) > 1`, "1e999999"},
	"json.unmarshal":                   {`ceil(json.unmarshal(v).a) > 1`, `{"a": 1E+999999}`},
	"yaml.unmarshal":                   {`ceil(yaml.unmarshal(v).a) > 1`, "a: 1e999999"},
	"aliases in YAML":                  {`count(yaml.unmarshal(v)) > 100`, "a: &a [" + strings.Repeat("x,", 5000) + "]\nb: [" + strings.Repeat("*a, ", 500) + "]"},
	"yaml.is_valid":                    {`not yaml.is_valid(v)`, strings.Repeat("- abcdefgh\n", 20_000)},
	"glob.match":                       {`glob.match(v, [], "` + strings.Repeat("a", 60) + `b")`, strings.Repeat("{*a,a*}", 12)},
	"regex.match":                      {`regex.match("^(a|aa){200}c$", v)`, strings.Repeat("a", 250_000)},
	"regex.find_n":                     {`count(regex.find_n("[a-z]", v, -1)) > 1`, strings.Repeat("a", 250_000)},
	"regex.split":                      {`count(regex.split(",", v)) > 1`, strings.Repeat(",", 250_000)},
	"regex.find_all_string_submatch_n": {`count(regex.find_all_string_submatch_n("(([a-z]))", v, -1)) > 1`, strings.Repeat("a", 250_000)},
	"object.subset":                    {`object.subset(split(v, ","), split(v, ","))`, strings.Repeat("a,", 120_000)},
	"sprintf":                          {`sprintf(v, [1]) == ""`, "%999999999d"},
}

// A value with which one call of a built-in function would take longer than a policy may refuses the pod that has it, and four such pods
// at once delay no pod of another project. Guards invariants 1 and 10 of the design.
func TestHostileValuesHarmNoOthers(t *testing.T) {
	plain := createRequest([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "annotations": {"example.org/value": "1"}},
		"spec": {"containers": [{"name": "main", "image": "a"}]}}`))
	plain.Namespace = "calm"
	for name, hostile := range hostileValues {
		t.Run(name, func(t *testing.T) {
			rego := "package values\n\ndeny contains \"the value is too large\" if {\n\tsome k, v in input.object.metadata.annotations\n" +
				"\tstartswith(k, \"hostile.example.org/\")\n\t" + hostile.condition + "\n}"
			base := newBase(t, engine.Source{Name: "values", Enforcement: v1alpha1.EnforcementDeny, Rego: rego})
			shared := newSharedBase(t)
			base.Tenants, base.Evaluator.Slots = shared.Tenants, evaluation.NewSlots(4)
			mutator := &pod.Mutator{Base: base}
			annotations := map[string]string{}
			for i := range max(1, min(20, 250_000/len(hostile.value))) {
				annotations[fmt.Sprint("hostile.example.org/", i)] = hostile.value
			}
			var pods sync.WaitGroup
			for i := range 4 {
				raw, err := json.Marshal(map[string]any{
					"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprint("a", i), "annotations": annotations},
					"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "a"}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				pods.Go(func() {
					response := mutator.Handle(t.Context(), createRequest(raw))
					if response.Allowed || !strings.Contains(response.Result.Message, "too large: the policy values cannot read a value of it") {
						t.Errorf("allowed %t: %.500s", response.Allowed, messageOf(response))
					}
				})
			}
			if response := mutator.Handle(t.Context(), plain); !response.Allowed {
				t.Errorf("a pod of another project: %s", response.Result.Message)
			}
			pods.Wait()
		})
	}
}

func messageOf(response admission.Response) string {
	if response.Result == nil {
		return ""
	}
	return response.Result.Message
}

// An honest policy whose time grows with the square of the variables refuses the large pods of three projects, each by itself. The next pod
// of another project is admitted. Guards invariants 1 and 10 of the design.
func TestLargePodsRefuseNoOthers(t *testing.T) {
	limits := engine.Limits{Evaluation: 100 * time.Millisecond, Request: time.Minute}
	base := newBaseWithOptions(t, engine.Options{Limits: limits}, engine.Source{Name: "twice", Enforcement: v1alpha1.EnforcementDeny, Rego: `package twice

deny contains {"msg": sprintf("container %s: variable %s occurs twice", [c.name, a.name]), "fix": "remove one"} if {
	some c in input.object.spec.containers
	some i, a in c.env
	some j, b in c.env
	i < j
	a.name == b.name
}`})
	cluster := newFakeReader()
	for i := range 3 {
		other := *cluster.projects[0].DeepCopy()
		other.Name = fmt.Sprint("other-", i)
		other.Status.Namespace = &v1alpha1.ProjectNamespace{Name: other.Name}
		cluster.projects = append(cluster.projects, other)
	}
	base.Tenants = &evaluation.TenantResolver{Cache: cluster}
	mutator := &pod.Mutator{Base: base}
	request := func(namespace string, containers, variables int) admission.Request {
		var list []any
		for n := range containers {
			var env []any
			for m := range variables {
				env = append(env, map[string]any{"name": fmt.Sprintf("%s_%d_%d", strings.ToUpper(namespace[:1]), n, m), "value": fmt.Sprint("value ", m)})
			}
			list = append(list, map[string]any{"name": fmt.Sprint("c", n), "image": "a:1", "env": env})
		}
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a", "namespace": namespace}, "spec": map[string]any{"containers": list},
		})
		if err != nil {
			t.Fatal(err)
		}
		created := createRequest(raw)
		created.Namespace = namespace
		return created
	}
	handle := func(created admission.Request) admission.Response {
		for { // until the machine has the time
			response := mutator.Handle(t.Context(), created)
			if response.Allowed || response.Result.Code != http.StatusTooManyRequests {
				return response
			}
		}
	}
	for i := range 3 {
		response := handle(request(fmt.Sprint("other-", i), 20, 256))
		if response.Allowed || !strings.Contains(response.Result.Message, "too large: the policy twice takes longer for it than a policy may") {
			t.Errorf("a large pod: allowed %t: %s", response.Allowed, messageOf(response))
		}
	}
	for _, variables := range []int{1, 20} {
		if response := handle(request("thesis", 1, variables)); !response.Allowed {
			t.Errorf("a pod of another project with %d variables: %s", variables, response.Result.Message)
		}
	}
}
