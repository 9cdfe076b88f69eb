// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Each kind by each way in which it could be started.
func TestRestartsOfEachKind(t *testing.T) {
	for _, kind := range workloadkind.All() {
		if kind.StopAction.Method == workloadkind.StopNever {
			continue
		}
		t.Run(kind.Kind, func(t *testing.T) {
			workload := func(name, program string, runs bool) *unstructured.Unstructured {
				return newWorkload(kind, name, program, runs)
			}
			hash := workloadkind.TemplateHash(kind.GroupKind, workload("w", "program", true).Object)
			if hash == "" {
				t.Fatal("nothing to hash")
			}
			stopped := newClock(kind.GroupKind, "w", hash, later)
			over := newClock(kind.GroupKind, "w", hash, earlier)
			runs := newClock(kind.GroupKind, "w", hash, time.Time{})
			schedule := kind.Kind == "CronJob" // its runs are the workloads
			stamp, past := workloadkind.FormatStoppedUntil(later), workloadkind.FormatStoppedUntil(earlier)
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
				"made by a controller":               {stopped, nil, withController(workload("copy", "program", true), "example.org/v1", "Farm", "f"), controllerManager, false},
				"a copy that claims a controller":    {stopped, nil, withController(workload("copy", "program", true), "example.org/v1", "Farm", "f"), anna, kind.Kind != "Pod" && !schedule},
				"made by a schedule":                 {stopped, nil, withController(workload("copy", "program", true), "batch/v1", "CronJob", "c"), controllerManager, kind.Kind != "Pod" && !schedule},
				"started":                            {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started by a controller":            {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), controllerManager, true},
				"started, and no clock":              {nil, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started, and controlled":            {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "batch/v1", "CronJob", "c"), workload("w", "program", true), anna, true},
				"started, and who decides?":          {nil, withStoppedUntil(workload("w", "program", false), workloadkind.FormatStoppedUntil(time.Time{})), workload("w", "program", true), anna, true},
				"started, and the mark is nonsense":  {nil, withStoppedUntil(workload("w", "program", false), "soon"), workload("w", "program", true), anna, true},
				"started, when it is over":           {stopped, withStoppedUntil(workload("w", "program", false), past), workload("w", "program", true), anna, false},
				"started, not marked":                {stopped, workload("w", "program", false), workload("w", "program", true), anna, !schedule},
				"started, not marked, when over":     {over, workload("w", "program", false), workload("w", "program", true), anna, false},
				"a copy started that did not run":    {stopped, workload("copy", "program", false), workload("copy", "program", true), anna, !schedule},
				"a child started by its controller":  {stopped, withController(workload("copy", "program", false), "example.org/v1", "Farm", "f"), workload("copy", "program", true), controllerManager, false},
				"marked, and it goes on not running": {stopped, withStoppedUntil(workload("w", "program", false), stamp), withStoppedUntil(workload("w", "another", false), stamp), anna, false},
				"stopped":                            {stopped, workload("w", "program", true), withStoppedUntil(workload("w", "program", false), stamp), anna, false},
				"it runs, and is changed":            {stopped, workload("w", "program", true), workload("w", "another", true), anna, false},
				"a child with its owner's mark":      {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), controllerManager, kind.Kind == "Workload"},
				"such a child, by a person":          {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), anna, true},
				"its mark taken off":                 {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", false), anna, false},
			}
			if kind.StopAction.Method != workloadkind.StopByDeletion {
				ways["made to run later"] = struct {
					clock   client.Object
					was, is *unstructured.Unstructured
					user    string
					refused bool
				}{stopped, nil, workload("w", "program", false), anna, false}
			}
			for name, way := range ways {
				if kind.StopAction.Method == workloadkind.StopByDeletion && way.was != nil {
					continue // it cannot be started again
				}
				var clocks []client.Object
				if way.clock != nil {
					clocks = append(clocks, way.clock)
				}
				response := validateChange(t, newValidator(t, clocks...), way.user, kind, way.was, way.is)
				if response.Allowed == way.refused {
					t.Errorf("%s: allowed %v: %s", name, response.Allowed, response.Result.Message)
				}
			}
		})
	}
}

// A workload that ran under its own clock has its own time, whatever else was
// stopped that runs the same.
func TestWorkloadWithClockIsNotACopy(t *testing.T) {
	kind := kindByName(t, "Job")
	hash := workloadkind.TemplateHash(kind.GroupKind, newWorkload(kind, "w", "program", true).Object)
	h := newValidator(t, newClock(kind.GroupKind, "w", hash, later), newClock(kind.GroupKind, "twin", hash, time.Time{}))
	response := validateChange(t, h, anna, kind, newWorkload(kind, "twin", "program", false), newWorkload(kind, "twin", "program", true))
	if !response.Allowed {
		t.Error(response.Result.Message)
	}
}

func TestScaleOfStoppedWorkload(t *testing.T) {
	deployment, set := kindByName(t, "Deployment").GroupKind, kindByName(t, "StatefulSet").GroupKind
	farm := schema.GroupKind{Group: "example.org", Kind: "Farm"}
	h := newValidator(t,
		newClock(deployment, "web", "", later), newClock(set, "db", "", later), newClock(farm, "f", "", later),
		newClock(deployment, "done", "", earlier),
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
			response := validateScale(t, h, tc.group, tc.resource, tc.name, tc.from, tc.to)
			if response.Allowed == tc.refused {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

func TestWorkloadsWithoutGPUsAreAllowed(t *testing.T) {
	for _, name := range []string{"Pod", "Job", "Deployment"} {
		kind := kindByName(t, name)
		object, before := newWorkload(kind, "w", "program", true), newWorkload(kind, "w", "program", false)
		h := newValidator(t, newClock(kind.GroupKind, "w", workloadkind.TemplateHash(kind.GroupKind, object.Object), later))
		for _, template := range workloadkind.Templates(kind.GroupKind, object.Object) {
			spec, _ := template.Body["spec"].(map[string]any)
			containers, _ := spec["containers"].([]any)
			main, _ := containers[0].(map[string]any)
			delete(main, "resources")
		}
		if response := validateChange(t, h, anna, kind, nil, object); !response.Allowed {
			t.Errorf("%s made: %s", name, response.Result.Message)
		}
		if response := validateChange(t, h, anna, kind, before, object); !response.Allowed {
			t.Errorf("%s started: %s", name, response.Result.Message)
		}
	}
}

// What Kueue suspends on its way in, it will start; its author hears at once.
func TestQueuedWorkloadIsDeniedOnCreate(t *testing.T) {
	kind := kindByName(t, "Job")
	h := newValidator(t, newClock(kind.GroupKind, "w", "", later))
	object := newWorkload(kind, "w", "program", false)
	object.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "thesis"})
	if response := validateChange(t, h, anna, kind, nil, object); response.Allowed {
		t.Error("allowed")
	}
}

// No other namespace's stop counts.
func TestStopsInOtherNamespacesAreIgnored(t *testing.T) {
	kind := kindByName(t, "Job")
	object := newWorkload(kind, "w", "program", true)
	elsewhere := newClock(kind.GroupKind, "w", workloadkind.TemplateHash(kind.GroupKind, object.Object), later)
	elsewhere.Namespace = "elsewhere"
	if response := validateChange(t, newValidator(t, elsewhere), anna, kind, nil, object); !response.Allowed {
		t.Error(response.Result.Message)
	}
}

// Of two stops the longer one holds; one without end is the longest.
func TestLongestStopApplies(t *testing.T) {
	kind := kindByName(t, "Job")
	object := newWorkload(kind, "copy", "program", true)
	hash := workloadkind.TemplateHash(kind.GroupKind, object.Object)
	clocks := []client.Object{
		newClock(kind.GroupKind, "a", hash, earlier),
		newClock(kind.GroupKind, "b", hash, later),
		newClock(kind.GroupKind, "c", hash, later.Add(time.Hour)),
	}
	says := func(says string) {
		t.Helper()
		expectDenial(t, validateChange(t, newValidator(t, clocks...), anna, kind, nil, object), says)
	}
	says(`Job copy runs the same as Job c, which was stopped by Sluice after it had run for 48h, its time limit, and can be started again at 2026-10-05 16:30 CEST; wait until then, or request more time: sluice extend job/c -n work --by 24h --reason "..."`)
	clocks = append(clocks, newClock(kind.GroupKind, "d", hash, later, func(s *v1alpha1.WorkloadClockStatus) {
		s.Stopped.Until, s.Stopped.Reason = nil, v1alpha1.EndProjectSuspended
	}))
	says(`Job copy runs the same as Job d, which was stopped by Sluice because its project is suspended, and can be started again only after a decision; renew the project: sluice extend project/thesis --reason "..."`)
}

func kindByName(t *testing.T, name string) workloadkind.Kind {
	t.Helper()
	for _, kind := range workloadkind.All() {
		if kind.Kind == name {
			return kind
		}
	}
	t.Fatalf("no kind %s", name)
	return workloadkind.Kind{}
}

func expectDenial(t *testing.T, response admission.Response, says string) {
	t.Helper()
	if response.Allowed {
		t.Fatal("allowed")
	}
	if diff := cmp.Diff(says, response.Result.Message); diff != "" {
		t.Error(diff)
	}
}

// The words say why, until when and what to do; without the clock still until when.
func TestDenialMessage(t *testing.T) {
	job, queued := kindByName(t, "Job"), kindByName(t, "Workload")
	because := func(reason v1alpha1.EndReason, change ...func(*v1alpha1.WorkloadClockStatus)) client.Object {
		set := func(s *v1alpha1.WorkloadClockStatus) { s.Stopped.Reason = reason }
		return newClock(job.GroupKind, "train", "", later, append(change, set)...)
	}
	started := func(kind workloadkind.Kind, name string, until time.Time) (was, is *unstructured.Unstructured) {
		return withStoppedUntil(newWorkload(kind, name, "p", false), workloadkind.FormatStoppedUntil(until)), newWorkload(kind, name, "p", true)
	}
	was, is := started(job, "train", later)
	wasOpen, _ := started(job, "train", time.Time{})
	wasOdd, _ := started(job, "train", later.Add(time.Second))
	wasQueued, isQueued := started(queued, "job-train-1a2b3", later)
	withController(wasQueued, "batch/v1", "Job", "train")
	const wait = ", and can be started again at 2026-10-05 15:30 CEST; wait until then"
	const more = `, or request more time: sluice extend job/train -n work --by 24h --reason "..."`
	for name, tc := range map[string]struct {
		clock   client.Object
		kind    workloadkind.Kind
		was, is *unstructured.Unstructured
		says    string
	}{
		"at its limit": {
			because(v1alpha1.EndMaxRuntime), job, was, is,
			"Job train was stopped by Sluice after it had run for 48h, its time limit" + wait + more,
		},
		"at a limit that is gone": {
			because(v1alpha1.EndMaxRuntime, func(s *v1alpha1.WorkloadClockStatus) { s.Limit = nil }), job, was, is,
			"Job train was stopped by Sluice after it had reached its time limit" + wait + more,
		},
		"idle": {because(v1alpha1.EndIdle), job, was, is, "Job train was stopped by Sluice because its GPUs were idle" + wait + more},
		"over its share": {
			because(v1alpha1.EndShareExceeded), job, was, is,
			"Job train was stopped by Sluice because it used more of a GPU than its share" + wait,
		},
		"preempted": {because(v1alpha1.EndPreempted), job, was, is, "Job train was stopped by Sluice to make room for other workloads" + wait},
		"its project is suspended": {
			because(v1alpha1.EndProjectSuspended), job, was, is,
			"Job train was stopped by Sluice because its project is suspended" + wait + `, or renew the project: sluice extend project/thesis --reason "..."`,
		},
		"no clock":           {nil, job, was, is, "Job train was stopped by Sluice" + wait + more},
		"a reason to come":   {because("Eclipse"), job, was, is, "Job train was stopped by Sluice" + wait + more},
		"Kueue's Workload":   {because(v1alpha1.EndIdle), queued, wasQueued, isQueued, "Job train was stopped by Sluice because its GPUs were idle" + wait + more},
		"seconds are filled": {nil, job, wasOdd, is, "Job train was stopped by Sluice, and can be started again at 2026-10-05 15:31 CEST; wait until then" + more},
		"nobody decided": {
			because(v1alpha1.EndShareExceeded), job, wasOpen, is,
			"Job train was stopped by Sluice because it used more of a GPU than its share, and can be started again only after a decision; ask the administrators of the department",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clocks []client.Object
			if tc.clock != nil {
				clocks = append(clocks, tc.clock)
			}
			expectDenial(t, validateChange(t, newValidator(t, clocks...), anna, tc.kind, tc.was, tc.is), tc.says)
		})
	}
}

// Whatever an object says, the answer comes, in words; only what starts is refused,
// and what cannot be read is not.
func FuzzValidator(f *testing.F) {
	all := workloadkind.All()
	for i, kind := range all {
		for _, runs := range []bool{true, false} {
			was, _ := json.Marshal(withStoppedUntil(newWorkload(kind, "w", "program", !runs), workloadkind.FormatStoppedUntil(later)).Object)
			is, _ := json.Marshal(newWorkload(kind, "w", "program", runs).Object)
			f.Add(was, is, i, "", anna)
			f.Add([]byte(nil), is, i, "", controllerManager)
			f.Add(was, is, i, "scale", anna)
		}
	}
	for _, hostile := range []string{
		``, `null`, `[]`, `"text"`, `{`, `{}`, `{"metadata":7,"spec":[]}`,
		`{"metadata":{"annotations":{"sluice.dev/stopped-until":9},"ownerReferences":[{"controller":true},7,{"controller":"yes"}]}}`,
		`{"metadata":{"annotations":{"sluice.dev/stopped-until":"9999-99-99"}},"spec":{"replicas":-1,"suspend":"true","template":[]}}`,
		`{"spec":{"replicas":1e400}}`, `{"spec":{"template":{"spec":{"containers":[null,{"args":{"a":1}}],"volumes":{"a":null}}}}}`,
		`{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":"1"}}`,
	} {
		f.Add([]byte(hostile), []byte(hostile), 2, "", anna)
		f.Add([]byte(`{"spec":{"replicas":0}}`), []byte(hostile), 2, "scale", anna)
		f.Add([]byte(nil), []byte(hostile), 0, "", anna)
	}
	job := all[0]
	for _, kind := range all {
		if kind.Kind == "Job" {
			job = kind
		}
	}
	h := newValidator(f,
		newClock(job.GroupKind, "w", workloadkind.TemplateHash(job.GroupKind, newWorkload(job, "w", "program", true).Object), later))
	f.Fuzz(func(t *testing.T, was, is []byte, i int, subresource, user string) {
		kind := all[((i%len(all))+len(all))%len(all)]
		req := admissionv1.AdmissionRequest{
			Namespace: ns, Name: "w", Operation: admissionv1.Create, SubResource: subresource,
			Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind},
			Resource: metav1.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: kind.Resource},
			UserInfo: authenticationv1.UserInfo{Username: user},
			Object:   runtime.RawExtension{Raw: is},
		}
		if len(was) > 0 {
			req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: was}
		}
		response := h.Handle(t.Context(), admission.Request{AdmissionRequest: req})
		if response.Result == nil || len(response.Patches) > 0 || len(response.Patch) > 0 {
			t.Fatalf("an answer without words, or with a patch: %+v", response)
		}
		message := response.Result.Message
		if len(message) > 1024 || !utf8.ValidString(message) && !response.Allowed {
			t.Errorf("%d bytes: %q", len(message), message)
		}
		if response.Allowed {
			return
		}
		if message == "" {
			t.Error("refused without words")
		}
		var after, before unstructured.Unstructured
		if json.Unmarshal(is, &after.Object) != nil || after.Object == nil {
			t.Errorf("refused what cannot be read: %s", message)
		}
		if len(was) > 0 && (json.Unmarshal(was, &before.Object) != nil || !workloadkind.StartsWorkload(&before, &after)) {
			t.Errorf("refused what starts nothing: %s", message)
		}
	})
}
