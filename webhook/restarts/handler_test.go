// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restarts_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
)

// Each kind by each way in which it could be started.
func TestWhatIsRefusedOfEachKind(t *testing.T) {
	for _, kind := range kinds.All() {
		if kind.Verb.Form == kinds.FormNever {
			continue
		}
		t.Run(kind.Kind, func(t *testing.T) {
			workload := func(name, program string, runs bool) *unstructured.Unstructured {
				return workloadOf(kind, name, program, runs)
			}
			hash := kinds.TemplateHash(kind.GroupKind, workload("w", "program", true).Object)
			if hash == "" {
				t.Fatal("nothing to hash")
			}
			stopped := clockOf(kind.GroupKind, "w", hash, later)
			over := clockOf(kind.GroupKind, "w", hash, before)
			runs := clockOf(kind.GroupKind, "w", hash, time.Time{})
			schedule := kind.Kind == "CronJob" // its runs are the workloads
			stamp, past := kinds.FormatUntil(later), kinds.FormatUntil(before)
			ways := map[string]struct {
				clock   client.Object
				was, is *unstructured.Unstructured
				user    string
				refused bool
			}{
				"made under its name":                {stopped, nil, workload("w", "program", true), anna, !schedule},
				"made under its name, another":       {stopped, nil, workload("w", "another", true), anna, !schedule},
				"a copy":                             {stopped, nil, workload("copy", "program", true), anna, !schedule},
				"a copy by a robot":                  {stopped, nil, workload("copy", "program", true), "system:serviceaccount:work:ci", !schedule},
				"another":                            {stopped, nil, workload("other", "another", true), anna, false},
				"a copy, when it is over":            {over, nil, workload("copy", "program", true), anna, false},
				"made under its name, when over":     {over, nil, workload("w", "program", true), anna, false},
				"a copy, while it runs":              {runs, nil, workload("copy", "program", true), anna, false},
				"made by a controller":               {stopped, nil, controlledBy(workload("copy", "program", true), "example.org/v1", "Farm", "f"), controller, false},
				"a copy that claims a controller":    {stopped, nil, controlledBy(workload("copy", "program", true), "example.org/v1", "Farm", "f"), anna, kind.Kind != "Pod" && !schedule},
				"made by a schedule":                 {stopped, nil, controlledBy(workload("copy", "program", true), "batch/v1", "CronJob", "c"), controller, kind.Kind != "Pod" && !schedule},
				"started":                            {stopped, marked(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started by a controller":            {stopped, marked(workload("w", "program", false), stamp), workload("w", "program", true), controller, true},
				"started, and no clock":              {nil, marked(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started, and controlled":            {nil, controlledBy(marked(workload("w", "program", false), stamp), "batch/v1", "CronJob", "c"), workload("w", "program", true), anna, true},
				"started, and who decides?":          {nil, marked(workload("w", "program", false), kinds.FormatUntil(time.Time{})), workload("w", "program", true), anna, true},
				"started, and the mark is nonsense":  {nil, marked(workload("w", "program", false), "soon"), workload("w", "program", true), anna, true},
				"started, when it is over":           {stopped, marked(workload("w", "program", false), past), workload("w", "program", true), anna, false},
				"started, not marked":                {stopped, workload("w", "program", false), workload("w", "program", true), anna, !schedule},
				"started, not marked, when over":     {over, workload("w", "program", false), workload("w", "program", true), anna, false},
				"a copy started that did not run":    {stopped, workload("copy", "program", false), workload("copy", "program", true), anna, !schedule},
				"a child started by its controller":  {stopped, controlledBy(workload("copy", "program", false), "example.org/v1", "Farm", "f"), workload("copy", "program", true), controller, false},
				"marked, and it goes on not running": {stopped, marked(workload("w", "program", false), stamp), marked(workload("w", "another", false), stamp), anna, false},
				"stopped":                            {stopped, workload("w", "program", true), marked(workload("w", "program", false), stamp), anna, false},
				"it runs, and is changed":            {stopped, workload("w", "program", true), workload("w", "another", true), anna, false},
				"a child with its owner's mark":      {nil, controlledBy(marked(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), controller, kind.Kind == "Workload"},
				"such a child, by a person":          {nil, controlledBy(marked(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), anna, true},
				"its mark taken off":                 {stopped, marked(workload("w", "program", false), stamp), workload("w", "program", false), anna, false},
			}
			if kind.Verb.Form != kinds.FormDelete {
				ways["made to run later"] = struct {
					clock   client.Object
					was, is *unstructured.Unstructured
					user    string
					refused bool
				}{stopped, nil, workload("w", "program", false), anna, false}
			}
			for name, way := range ways {
				if kind.Verb.Form == kinds.FormDelete && way.was != nil {
					continue // it cannot be started again
				}
				var clocks []client.Object
				if way.clock != nil {
					clocks = append(clocks, way.clock)
				}
				response := ask(t, newHandler(t, clocks...), way.user, kind, way.was, way.is)
				if response.Allowed == way.refused {
					t.Errorf("%s: allowed %v: %s", name, response.Allowed, response.Result.Message)
				}
			}
		})
	}
}

// A workload that ran under its own clock has its own time, whatever else was
// stopped that runs the same.
func TestOneThatRanBeforeIsNoCopy(t *testing.T) {
	kind := kindNamed(t, "Job")
	hash := kinds.TemplateHash(kind.GroupKind, workloadOf(kind, "w", "program", true).Object)
	h := newHandler(t, clockOf(kind.GroupKind, "w", hash, later), clockOf(kind.GroupKind, "twin", hash, time.Time{}))
	response := ask(t, h, anna, kind, workloadOf(kind, "twin", "program", false), workloadOf(kind, "twin", "program", true))
	if !response.Allowed {
		t.Error(response.Result.Message)
	}
}

func TestScale(t *testing.T) {
	deployment, set := kindNamed(t, "Deployment").GroupKind, kindNamed(t, "StatefulSet").GroupKind
	farm := schema.GroupKind{Group: "example.org", Kind: "Farm"}
	h := newHandler(t,
		clockOf(deployment, "web", "", later), clockOf(set, "db", "", later), clockOf(farm, "f", "", later),
		clockOf(deployment, "done", "", before),
	)
	for name, tc := range map[string]struct {
		group, resource, name string
		from, to              int
		refused               bool
	}{
		"from nothing":            {"apps", "deployments", "web", 0, 1, true},
		"of a kind nobody knows":  {"example.org", "farms", "f", 0, 3, true},
		"more of what runs":       {"apps", "deployments", "web", 1, 2, false},
		"to nothing":              {"apps", "deployments", "web", 2, 0, false},
		"nothing stays nothing":   {"apps", "deployments", "web", 0, 0, false},
		"another's name":          {"apps", "deployments", "db", 0, 1, false},
		"another group":           {"example.org", "deployments", "web", 0, 1, false},
		"when it is over":         {"apps", "deployments", "done", 0, 1, false},
		"never stopped":           {"apps", "deployments", "other", 0, 1, false},
		"a set of pods in order":  {"apps", "statefulsets", "db", 0, 1, true},
		"a part of a Deployment":  {"apps", "replicasets", "web", 0, 1, false},
		"an unknown kind's other": {"example.org", "stables", "f", 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			response := askScale(t, h, tc.group, tc.resource, tc.name, tc.from, tc.to)
			if response.Allowed == tc.refused {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

func TestWhatHasNoGPUIsNotJudged(t *testing.T) {
	for _, name := range []string{"Pod", "Job", "Deployment"} {
		kind := kindNamed(t, name)
		object, before := workloadOf(kind, "w", "program", true), workloadOf(kind, "w", "program", false)
		h := newHandler(t, clockOf(kind.GroupKind, "w", kinds.TemplateHash(kind.GroupKind, object.Object), later))
		for _, template := range kinds.Templates(kind.GroupKind, object.Object) {
			spec, _ := template.Body["spec"].(map[string]any)
			containers, _ := spec["containers"].([]any)
			main, _ := containers[0].(map[string]any)
			delete(main, "resources")
		}
		if response := ask(t, h, anna, kind, nil, object); !response.Allowed {
			t.Errorf("%s made: %s", name, response.Result.Message)
		}
		if response := ask(t, h, anna, kind, before, object); !response.Allowed {
			t.Errorf("%s started: %s", name, response.Result.Message)
		}
	}
}

// What Kueue suspends on its way in, it will start; its author hears at once.
func TestWhatWaitsInAQueueIsRefusedAtOnce(t *testing.T) {
	kind := kindNamed(t, "Job")
	h := newHandler(t, clockOf(kind.GroupKind, "w", "", later))
	object := workloadOf(kind, "w", "program", false)
	object.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "thesis"})
	if response := ask(t, h, anna, kind, nil, object); response.Allowed {
		t.Error("allowed")
	}
}

// No other namespace's stop counts.
func TestStopsOfOtherNamespaces(t *testing.T) {
	kind := kindNamed(t, "Job")
	object := workloadOf(kind, "w", "program", true)
	elsewhere := clockOf(kind.GroupKind, "w", kinds.TemplateHash(kind.GroupKind, object.Object), later)
	elsewhere.Namespace = "elsewhere"
	if response := ask(t, newHandler(t, elsewhere), anna, kind, nil, object); !response.Allowed {
		t.Error(response.Result.Message)
	}
}

// Of two stops the longer one holds; one without end is the longest.
func TestTheLongestStopHolds(t *testing.T) {
	kind := kindNamed(t, "Job")
	object := workloadOf(kind, "copy", "program", true)
	hash := kinds.TemplateHash(kind.GroupKind, object.Object)
	clocks := []client.Object{
		clockOf(kind.GroupKind, "a", hash, before),
		clockOf(kind.GroupKind, "b", hash, later),
		clockOf(kind.GroupKind, "c", hash, later.Add(time.Hour)),
	}
	says := func(says string) {
		t.Helper()
		wantWords(t, ask(t, newHandler(t, clocks...), anna, kind, nil, object), says)
	}
	says(`Job copy runs the same as Job c, which was stopped by Sluice when it had run for 48h, as long as it may, and may be started again at 2026-10-05 16:30 CEST; wait until then, or ask for more time: sluice extend job/c -n work --by 24h --reason "..."`)
	clocks = append(clocks, clockOf(kind.GroupKind, "d", hash, later, func(s *v1alpha1.WorkloadClockStatus) {
		s.Stopped.Until, s.Stopped.Reason = nil, v1alpha1.EndProjectSuspended
	}))
	says(`Job copy runs the same as Job d, which was stopped by Sluice since its project is suspended, and may be started again only when that is decided; have the project renewed: sluice extend project/thesis --reason "..."`)
}

func kindNamed(t *testing.T, name string) kinds.Kind {
	t.Helper()
	for _, kind := range kinds.All() {
		if kind.Kind == name {
			return kind
		}
	}
	t.Fatalf("no kind %s", name)
	return kinds.Kind{}
}
