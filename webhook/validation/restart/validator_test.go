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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// Each kind is started in each possible way.
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
			schedule := kind.Kind == "CronJob" // its Jobs are the workloads
			stamp, past := workloadkind.FormatStoppedUntil(later), workloadkind.FormatStoppedUntil(earlier)
			ways := map[string]struct {
				clock   client.Object
				was, is *unstructured.Unstructured
				user    string
				denied  bool
			}{
				"created with its name":             {stopped, nil, workload("w", "program", true), anna, !schedule},
				"its name, another template":        {stopped, nil, workload("w", "another", true), anna, !schedule},
				"a copy":                            {stopped, nil, workload("copy", "program", true), anna, !schedule},
				"a copy by a service account":       {stopped, nil, workload("copy", "program", true), "system:serviceaccount:work:ci", !schedule},
				"another workload":                  {stopped, nil, workload("other", "another", true), anna, false},
				"a copy after the stop":             {over, nil, workload("copy", "program", true), anna, false},
				"its name after the stop":           {over, nil, workload("w", "program", true), anna, false},
				"a copy of a running workload":      {runs, nil, workload("copy", "program", true), anna, false},
				"created by a controller":           {stopped, nil, withController(workload("copy", "program", true), "example.org/v1", "Farm", "f"), controllerManager, false},
				"a copy that claims a controller":   {stopped, nil, withController(workload("copy", "program", true), "example.org/v1", "Farm", "f"), anna, kind.Kind != "Pod" && !schedule},
				"the name by another user":          {stopped, nil, workload("w", "program", true), bob, false},
				"a copy by another user":            {stopped, nil, workload("copy", "program", true), bob, false},
				"a copy by a foreign account":       {stopped, nil, workload("copy", "program", true), "system:serviceaccount:other:ci", !schedule},
				"created by another CronJob":        {stopped, nil, withController(workload("copy", "program", true), "batch/v1", "CronJob", "c"), controllerManager, false},
				"a run of the same CronJob":         {stopped, nil, withController(workload("copy", "program", true), "batch/v1", "CronJob", "w"), controllerManager, false},
				"started":                           {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started by a controller":           {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), controllerManager, true},
				"started without a clock":           {nil, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", true), anna, true},
				"started with a controller":         {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "batch/v1", "CronJob", "c"), workload("w", "program", true), anna, true},
				"started, stopped until a decision": {nil, withStoppedUntil(workload("w", "program", false), workloadkind.FormatStoppedUntil(time.Time{})), workload("w", "program", true), anna, true},
				"started, invalid annotation":       {nil, withStoppedUntil(workload("w", "program", false), "soon"), workload("w", "program", true), anna, true},
				"started after the stop":            {stopped, withStoppedUntil(workload("w", "program", false), past), workload("w", "program", true), anna, false},
				"started without annotation":        {stopped, workload("w", "program", false), workload("w", "program", true), anna, !schedule},
				"no annotation, after the stop":     {over, workload("w", "program", false), workload("w", "program", true), anna, false},
				"a stopped copy started":            {stopped, workload("copy", "program", false), workload("copy", "program", true), anna, !schedule},
				"a child started by its controller": {stopped, withController(workload("copy", "program", false), "example.org/v1", "Farm", "f"), workload("copy", "program", true), controllerManager, false},
				"updated, but not started":          {stopped, withStoppedUntil(workload("w", "program", false), stamp), withStoppedUntil(workload("w", "another", false), stamp), anna, false},
				"stopped":                           {stopped, workload("w", "program", true), withStoppedUntil(workload("w", "program", false), stamp), anna, false},
				"a running workload changed":        {stopped, workload("w", "program", true), workload("w", "another", true), anna, false},
				"a child with the annotation":       {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), controllerManager, kind.Kind == "Workload"},
				"such a child by a user":            {nil, withController(withStoppedUntil(workload("w", "program", false), stamp), "example.org/v1", "Farm", "f"), workload("w", "program", true), anna, true},
				"its annotation removed":            {stopped, withStoppedUntil(workload("w", "program", false), stamp), workload("w", "program", false), anna, false},
			}
			if kind.StopAction.Method != workloadkind.StopByDeletion {
				ways["created as stopped"] = struct {
					clock   client.Object
					was, is *unstructured.Unstructured
					user    string
					denied  bool
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
				if response.Allowed == way.denied {
					t.Errorf("%s: allowed %v: %s", name, response.Allowed, response.Result.Message)
				}
			}
		})
	}
}

// Protects invariant 12: a frequent CronJob cannot continue past the stop of a run, and another CronJob with the same
// template can, whose name is longer, too. Both are created by the CronJob controller.
func TestNextRunOfStoppedCronJobRunIsDenied(t *testing.T) {
	kind := kindByName(t, "Job")
	hash := workloadkind.TemplateHash(kind.GroupKind, newWorkload(kind, "w", "program", true).Object)
	validator := newValidator(t, newClock(kind.GroupKind, "agents-29312345", hash, later))
	for name, tc := range map[string]struct {
		cronJob, user string
		denied        bool
	}{
		"the same CronJob":                        {"agents", controllerManager, true},
		"the same CronJob, separate identities":   {"agents", "system:serviceaccount:kube-system:cronjob-controller", true},
		"another CronJob":                         {"others", controllerManager, false},
		"a CronJob with a prefix of the name":     {"agent", controllerManager, false},
		"a manual run by the CronJob's creator":   {"agents", anna, true},
		"a manual run by another user":            {"agents", bob, false},
		"a forged reference of a service account": {"others", "system:serviceaccount:" + ns + ":ci", true},
	} {
		t.Run(name, func(t *testing.T) {
			run := withController(newWorkload(kind, tc.cronJob+"-29312346", "program", true), "batch/v1", "CronJob", tc.cronJob)
			if response := validateChange(t, validator, tc.user, kind, nil, run); response.Allowed == tc.denied {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

// Protects invariant 12: a stop does not apply to another user's object that has the name now.
func TestStopAppliesToTheSameObject(t *testing.T) {
	kind := kindByName(t, "Job")
	clock := newClock(kind.GroupKind, "w", "", later, func(s *v1alpha1.WorkloadClockStatus) { s.RootUID = "stopped" })
	for _, tc := range []struct {
		uid, creator string
		denied       bool
	}{{"stopped", anna, true}, {"stopped", "", true}, {"new", anna, true}, {"new", bob, false}} {
		was, is := newWorkload(kind, "w", "program", false), newWorkload(kind, "w", "program", true)
		was.SetUID(types.UID(tc.uid))
		was.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: tc.creator})
		if response := validateChange(t, newValidator(t, clock), bob, kind, was, is); response.Allowed == tc.denied {
			t.Errorf("%s by %s: allowed %v: %s", tc.uid, tc.creator, response.Allowed, response.Result.Message)
		}
	}
	const autoscaler = "system:serviceaccount:keda:keda-operator"
	deployment := kindByName(t, "Deployment")
	clock = newClock(deployment.GroupKind, "web", "", later, func(s *v1alpha1.WorkloadClockStatus) { s.RootUID = "stopped" })
	for _, tc := range []struct {
		uid, user string
		denied    bool
	}{
		{"stopped", bob, true},
		{"new", anna, true},
		{"new", bob, false},
		{"stopped", autoscaler, true},
		{"new", autoscaler, false},
	} {
		scale := func(n int) map[string]any {
			return map[string]any{
				"apiVersion": "autoscaling/v1", "kind": "Scale",
				"metadata": map[string]any{"namespace": ns, "name": "web", "uid": tc.uid}, "spec": map[string]any{"replicas": n},
			}
		}
		response := newValidator(t, clock).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: ns, Name: "web", Operation: admissionv1.Update, SubResource: "scale",
			Kind:     metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
			Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			UserInfo: authenticationv1.UserInfo{Username: tc.user},
			Object:   rawExtension(t, scale(1)), OldObject: rawExtension(t, scale(0)),
		}})
		if response.Allowed == tc.denied {
			t.Errorf("scale of %s by %s: allowed %v: %s", tc.uid, tc.user, response.Allowed, response.Result.Message)
		}
	}
}

// A workload that starts again is denied as a copy of a stopped one if that one ran meanwhile: they
// take turns. Workloads that ran at the same time have their own clocks.
func TestStopAppliesToWorkloadThatTakesTurns(t *testing.T) {
	kind := kindByName(t, "Job")
	hash := workloadkind.TemplateHash(kind.GroupKind, newWorkload(kind, "w", "program", true).Object)
	ranSince := func(since time.Time) func(*v1alpha1.WorkloadClockStatus) {
		return func(s *v1alpha1.WorkloadClockStatus) { s.LastRunningSince = ptr.To(metav1.NewTime(since)) }
	}
	pausedSince := func(since time.Time) func(*v1alpha1.WorkloadClockStatus) {
		return func(s *v1alpha1.WorkloadClockStatus) { s.PausedSince = ptr.To(metav1.NewTime(since)) }
	}
	for name, tc := range map[string]struct {
		stopped, own func(*v1alpha1.WorkloadClockStatus)
		denied       bool
	}{
		"ran at the same time":             {ranSince(now.Add(-48 * time.Hour)), pausedSince(now.Add(-30 * time.Minute)), false},
		"ran since its pause":              {ranSince(now.Add(-2 * time.Hour)), pausedSince(now.Add(-3 * time.Hour)), true},
		"its clock was reset":              {ranSince(now.Add(-48 * time.Hour)), func(*v1alpha1.WorkloadClockStatus) {}, true},
		"the stopped one has no last time": {func(*v1alpha1.WorkloadClockStatus) {}, pausedSince(now.Add(-time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			validator := newValidator(t, newClock(kind.GroupKind, "w", hash, later, tc.stopped), newClock(kind.GroupKind, "twin", hash, time.Time{}, tc.own))
			response := validateChange(t, validator, anna, kind, newWorkload(kind, "twin", "program", false), newWorkload(kind, "twin", "program", true))
			if response.Allowed == tc.denied {
				t.Errorf("allowed: %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

func TestScaleOfStoppedWorkload(t *testing.T) {
	deployment, set := kindByName(t, "Deployment").GroupKind, kindByName(t, "StatefulSet").GroupKind
	farm := schema.GroupKind{Group: "example.org", Kind: "Farm"}
	validator := newValidator(t,
		newClock(deployment, "web", "", later), newClock(set, "db", "", later), newClock(farm, "f", "", later),
		newClock(deployment, "done", "", earlier),
	)
	for name, tc := range map[string]struct {
		group, resource, name string
		from, to              int
		denied                bool
	}{
		"from zero":            {"apps", "deployments", "web", 0, 1, true},
		"of an unknown kind":   {"example.org", "farms", "f", 0, 3, true},
		"more replicas":        {"apps", "deployments", "web", 1, 2, false},
		"to zero":              {"apps", "deployments", "web", 2, 0, false},
		"zero stays zero":      {"apps", "deployments", "web", 0, 0, false},
		"another's name":       {"apps", "deployments", "db", 0, 1, false},
		"another group":        {"example.org", "deployments", "web", 0, 1, false},
		"after the stop":       {"apps", "deployments", "done", 0, 1, false},
		"never stopped":        {"apps", "deployments", "other", 0, 1, false},
		"a StatefulSet":        {"apps", "statefulsets", "db", 0, 1, true},
		"a ReplicaSet":         {"apps", "replicasets", "web", 0, 1, false},
		"another unknown kind": {"example.org", "stables", "f", 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			response := validateScale(t, validator, tc.group, tc.resource, tc.name, tc.from, tc.to)
			if response.Allowed == tc.denied {
				t.Errorf("allowed %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}

func TestWorkloadsWithoutGPUsAreAllowed(t *testing.T) {
	for _, name := range []string{"Pod", "Job", "Deployment"} {
		kind := kindByName(t, name)
		object, before := newWorkload(kind, "w", "program", true), newWorkload(kind, "w", "program", false)
		validator := newValidator(t, newClock(kind.GroupKind, "w", workloadkind.TemplateHash(kind.GroupKind, object.Object), later))
		for _, template := range workloadkind.Templates(kind.GroupKind, object.Object) {
			spec, _ := template.Body["spec"].(map[string]any)
			containers, _ := spec["containers"].([]any)
			main, _ := containers[0].(map[string]any)
			delete(main, "resources")
		}
		if response := validateChange(t, validator, anna, kind, nil, object); !response.Allowed {
			t.Errorf("%s created: %s", name, response.Result.Message)
		}
		if response := validateChange(t, validator, anna, kind, before, object); !response.Allowed {
			t.Errorf("%s started: %s", name, response.Result.Message)
		}
	}
}

// Kueue starts a workload that it suspends at creation, so that the creation is denied.
func TestQueuedWorkloadIsDeniedOnCreate(t *testing.T) {
	kind := kindByName(t, "Job")
	validator := newValidator(t, newClock(kind.GroupKind, "w", "", later))
	object := newWorkload(kind, "w", "program", false)
	object.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "thesis"})
	if response := validateChange(t, validator, anna, kind, nil, object); response.Allowed {
		t.Error("allowed")
	}
}

// Stops in other namespaces do not apply.
func TestStopsInOtherNamespacesAreIgnored(t *testing.T) {
	kind := kindByName(t, "Job")
	object := newWorkload(kind, "w", "program", true)
	elsewhere := newClock(kind.GroupKind, "w", workloadkind.TemplateHash(kind.GroupKind, object.Object), later)
	elsewhere.Namespace = "elsewhere"
	if response := validateChange(t, newValidator(t, elsewhere), anna, kind, nil, object); !response.Allowed {
		t.Error(response.Result.Message)
	}
}

// The longest of several stops applies; a stop without an end is the longest.
func TestLongestStopApplies(t *testing.T) {
	kind := kindByName(t, "Job")
	object := newWorkload(kind, "copy", "program", true)
	hash := workloadkind.TemplateHash(kind.GroupKind, object.Object)
	clocks := []client.Object{
		newClock(kind.GroupKind, "a", hash, earlier),
		newClock(kind.GroupKind, "b", hash, later),
		newClock(kind.GroupKind, "c", hash, later.Add(time.Hour)),
	}
	expectMessage := func(want string) {
		t.Helper()
		expectDenial(t, validateChange(t, newValidator(t, clocks...), anna, kind, nil, object), want)
	}
	expectMessage(`Job copy runs the same as Job c, which was stopped by Sluice after it had run for 48h, its time limit, and can be started again at 2026-10-05 16:30 CEST; wait until then, or request more time: sluice extend job/c -n work --by 24h --reason "..."`)
	clocks = append(clocks, newClock(kind.GroupKind, "d", hash, later, func(s *v1alpha1.WorkloadClockStatus) {
		s.Stopped.Until, s.Stopped.Reason = nil, v1alpha1.EndProjectSuspended
	}))
	expectMessage(`Job copy runs the same as Job d, which was stopped by Sluice because its project is suspended, and can be started again only after a decision; renew the project: sluice renew project/thesis --reason "..."`)
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

func expectDenial(t *testing.T, response admission.Response, want string) {
	t.Helper()
	if response.Allowed {
		t.Fatal("allowed")
	}
	if diff := cmp.Diff(want, response.Result.Message); diff != "" {
		t.Error(diff)
	}
}

// The message has the reason, the end and the remedy; without a clock it still has the end.
func TestDenialMessage(t *testing.T) {
	job, queued := kindByName(t, "Job"), kindByName(t, "Workload")
	stoppedFor := func(reason v1alpha1.EndReason, change ...func(*v1alpha1.WorkloadClockStatus)) client.Object {
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
		want    string
	}{
		"at its limit": {
			stoppedFor(v1alpha1.EndMaxRuntime), job, was, is,
			"Job train was stopped by Sluice after it had run for 48h, its time limit" + wait + more,
		},
		"at a removed limit": {
			stoppedFor(v1alpha1.EndMaxRuntime, func(s *v1alpha1.WorkloadClockStatus) { s.Limit = nil }), job, was, is,
			"Job train was stopped by Sluice after it had reached its time limit" + wait + more,
		},
		"idle": {stoppedFor(v1alpha1.EndIdle), job, was, is, "Job train was stopped by Sluice because its GPUs were idle" + wait + more},
		"over its share": {
			stoppedFor(v1alpha1.EndShareExceeded), job, was, is,
			"Job train was stopped by Sluice because it used more of a GPU than its share" + wait,
		},
		"preempted": {stoppedFor(v1alpha1.EndPreempted), job, was, is, "Job train was stopped by Sluice to make room for other workloads" + wait},
		"project suspended": {
			stoppedFor(v1alpha1.EndProjectSuspended), job, was, is,
			"Job train was stopped by Sluice because its project is suspended" + wait + `, or renew the project: sluice renew project/thesis --reason "..."`,
		},
		"no clock":           {nil, job, was, is, "Job train was stopped by Sluice" + wait + more},
		"an unknown reason":  {stoppedFor("Eclipse"), job, was, is, "Job train was stopped by Sluice" + wait + more},
		"Kueue's Workload":   {stoppedFor(v1alpha1.EndIdle), queued, wasQueued, isQueued, "Job train was stopped by Sluice because its GPUs were idle" + wait + more},
		"seconds rounded up": {nil, job, wasOdd, is, "Job train was stopped by Sluice, and can be started again at 2026-10-05 15:31 CEST; wait until then" + more},
		"until a decision": {
			stoppedFor(v1alpha1.EndShareExceeded), job, wasOpen, is,
			"Job train was stopped by Sluice because it used more of a GPU than its share, and can be started again only after a decision; ask the administrators of the department",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clocks []client.Object
			if tc.clock != nil {
				clocks = append(clocks, tc.clock)
			}
			expectDenial(t, validateChange(t, newValidator(t, clocks...), anna, tc.kind, tc.was, tc.is), tc.want)
		})
	}
}

// Any input has a response with a message. Only starts are denied, and never an invalid object.
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
	validator := newValidator(f,
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
		response := validator.Handle(t.Context(), admission.Request{AdmissionRequest: req})
		if response.Result == nil || len(response.Patches) > 0 || len(response.Patch) > 0 {
			t.Fatalf("a response without a message, or with a patch: %+v", response)
		}
		message := response.Result.Message
		if len(message) > 1024 || !utf8.ValidString(message) && !response.Allowed {
			t.Errorf("%d bytes: %q", len(message), message)
		}
		if response.Allowed {
			return
		}
		if message == "" {
			t.Error("denied without a message")
		}
		var after, before unstructured.Unstructured
		if json.Unmarshal(is, &after.Object) != nil || after.Object == nil {
			t.Errorf("an invalid object is denied: %s", message)
		}
		if len(was) > 0 && (json.Unmarshal(was, &before.Object) != nil || !workloadkind.StartsWorkload(&before, &after)) {
			t.Errorf("a request that starts nothing is denied: %s", message)
		}
	})
}
