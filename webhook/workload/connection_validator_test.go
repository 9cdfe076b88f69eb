// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/workload"
)

const (
	ns         = "work"
	bob        = "bob@example.org"
	replicaSet = "system:serviceaccount:kube-system:replicaset-controller"
	jobs       = "system:serviceaccount:kube-system:job-controller"
	cronJobs   = "system:serviceaccount:kube-system:cronjob-controller"
	account    = "system:serviceaccount:work:ci"
)

// meta returns the metadata of an object with a creator and, if it is not nil, a controller.
func meta(name, by string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name + "-uid")}
	if by != "" {
		m.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by}
	}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return m
}

func ref(version, kind, name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
}

func newResolver(t *testing.T, intercept interceptor.Funcs, objects ...client.Object) *workload.CreatorResolver {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	parameters := &v1alpha1.AdmissionParameters{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
		Spec:       v1alpha1.AdmissionParametersSpec{Controllers: []v1alpha1.UserPattern{replicaSet, jobs, cronJobs}},
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(intercept).WithObjects(objects...).WithObjects(parameters).Build()
	return &workload.CreatorResolver{Live: live, Controllers: &evaluation.TenantResolver{Cache: live}}
}

// objects are workloads of anna and bob, and pods that claim to be theirs.
func objects() []client.Object {
	replaced := ref("batch/v1", "Job", "train")
	replaced.UID = "the-former-one"
	loop := ref("batch/v1", "Job", "loop")
	adopted := &corev1.Pod{ObjectMeta: meta("adopted", replicaSet, ref("apps/v1", "ReplicaSet", "web-1"))}
	adopted.Labels = map[string]string{v1alpha1.LabelCreator: v1alpha1.CreatorLabel(bob)}
	return []client.Object{
		adopted,
		&corev1.Pod{ObjectMeta: meta("bare", anna, nil)},
		&corev1.Pod{ObjectMeta: meta("others", bob, nil)},
		&corev1.Pod{ObjectMeta: meta("before-adoption", "", nil)},
		&corev1.Pod{ObjectMeta: meta("forged-without-creator", "", ref("batch/v1", "Job", "train"))},
		&appsv1.ReplicaSet{ObjectMeta: meta("web-1", anna, ref("apps/v1", "Deployment", "web"))},
		&corev1.Pod{ObjectMeta: meta("web-1-a", replicaSet, ref("apps/v1", "ReplicaSet", "web-1"))},
		&batchv1.Job{ObjectMeta: meta("train", anna, nil)},
		&corev1.Pod{ObjectMeta: meta("train-a", jobs, ref("batch/v1", "Job", "train"))},
		&corev1.Pod{ObjectMeta: meta("train-old", jobs, replaced)},
		&batchv1.CronJob{ObjectMeta: meta("nightly", anna, nil)},
		&batchv1.Job{ObjectMeta: meta("nightly-1", cronJobs, ref("batch/v1", "CronJob", "nightly"))},
		&corev1.Pod{ObjectMeta: meta("nightly-1-a", jobs, ref("batch/v1", "Job", "nightly-1"))},
		&corev1.Pod{ObjectMeta: meta("forged-owner", bob, ref("batch/v1", "Job", "train"))}, // bob names anna's Job
		&corev1.Pod{ObjectMeta: meta("by-account", account, ref("batch/v1", "Job", "train"))},
		&batchv1.Job{ObjectMeta: meta("loop", jobs, loop)},
		&corev1.Pod{ObjectMeta: meta("in-loop", jobs, loop)},
		&corev1.Pod{ObjectMeta: meta("orphan", jobs, ref("batch/v1", "Job", "deleted"))},
	}
}

func connect(t *testing.T, resolver *workload.CreatorResolver, user, pod, subresource string) admission.Response {
	t.Helper()
	return (&workload.ConnectionValidator{Creators: resolver}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Connect, Namespace: ns, Name: pod, SubResource: subresource,
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, UserInfo: authenticationv1.UserInfo{Username: user},
		Object: runtime.RawExtension{Raw: []byte(`{"kind":"PodExecOptions","apiVersion":"v1","command":["sh"]}`)},
	}})
}

// Only the user behind a pod connects to it. Guards invariant 4 of the design.
func TestConnections(t *testing.T) {
	resolver := newResolver(t, interceptor.Funcs{}, objects()...)
	for _, tc := range []struct {
		user, pod string
		code      int32
		message   string
	}{
		{anna, "bare", 0, ""},
		{anna, "web-1-a", 0, ""},
		{anna, "train-a", 0, ""},
		{anna, "nightly-1-a", 0, ""},
		{account, "by-account", 0, ""},
		{bob, "bare", http.StatusForbidden, "it was created by " + anna},
		{bob, "train-a", http.StatusForbidden, "it was created by " + anna},
		{bob, "nightly-1-a", http.StatusForbidden, "it was created by " + anna},
		{account, "bare", http.StatusForbidden, "it was created by " + anna},
		{jobs, "train-a", http.StatusForbidden, "it was created by " + anna},
		{anna, "others", http.StatusForbidden, "ask the creator of the pod, or an L1 researcher or editor of the project"},
		{anna, "before-adoption", http.StatusForbidden, "its creator is not known"},
		{anna, "forged-without-creator", http.StatusForbidden, "its creator is not known"},
		{anna, "forged-owner", http.StatusForbidden, "it was created by " + bob},
		{anna, "by-account", http.StatusForbidden, "it was created by " + account},
		{anna, "train-old", http.StatusForbidden, "its owner, Job train, was deleted, and another has that name"},
		{anna, "in-loop", http.StatusForbidden, "more than 8 owners"},
		{anna, "orphan", http.StatusForbidden, "its owner, Job deleted, was deleted"},
		{anna, "adopted", http.StatusForbidden, "it was created for the workload of another user"},
		{anna, "missing", http.StatusNotFound, `pods "missing" not found`},
	} {
		for _, subresource := range []string{"attach", "exec", "portforward"} {
			t.Run(strings.Join([]string{tc.user, subresource, tc.pod}, " "), func(t *testing.T) {
				response := connect(t, resolver, tc.user, tc.pod, subresource)
				if response.Allowed != (tc.code == 0) {
					t.Fatalf("allowed = %v: %+v", response.Allowed, response.Result)
				}
				if !response.Allowed && (response.Result.Code != tc.code || !strings.Contains(response.Result.Message, tc.message)) {
					t.Errorf("%d %s, want %d with %q", response.Result.Code, response.Result.Message, tc.code, tc.message)
				}
			})
		}
	}
}

// A controller of anna's may take over what one of bob's released, by its labels. Pods without the label of a creator
// do not say for whom they were made, so the resolver recognizes them by their names and times. Guards invariant 4 of the
// design.
func TestConnectionsToAdoptedPods(t *testing.T) {
	start := metav1.Unix(1_790_000_000, 0)
	at := func(after time.Duration, object client.Object) client.Object {
		object.SetCreationTimestamp(metav1.Time{Time: start.Add(after)})
		return object
	}
	pod := func(generateName, by string, owner *metav1.OwnerReference, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta("pod", by, owner)}
		p.GenerateName, p.Labels = generateName, labels
		return p
	}
	hash := func(name, hash string, owner *metav1.OwnerReference) *appsv1.ReplicaSet {
		r := &appsv1.ReplicaSet{ObjectMeta: meta(name, replicaSet, owner)}
		r.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
		return r
	}
	web, webSet := ref("apps/v1", "Deployment", "web"), ref("apps/v1", "ReplicaSet", "web-1")
	train := ref("batch/v1", "Job", "train")
	ofAnna := map[string]string{v1alpha1.LabelCreator: v1alpha1.CreatorLabel(anna)}
	for name, tc := range map[string]struct {
		objects []client.Object
		message string
	}{
		"created by the ReplicaSet": {objects: []client.Object{
			at(0, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", anna, nil)}), at(time.Hour, pod("web-1-", replicaSet, webSet, nil)),
		}},
		"created by a ReplicaSet with a long name": {objects: []client.Object{
			at(0, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", anna, nil)}), at(time.Hour, pod("web-1", replicaSet, webSet, nil)),
		}},
		"created by the Deployment": {objects: []client.Object{
			at(0, &appsv1.Deployment{ObjectMeta: meta("web", anna, nil)}), at(time.Hour, hash("web-1", "1", web)), at(time.Hour, pod("web-1-", replicaSet, webSet, nil)),
		}},
		"in a cluster whose API servers' clocks differ": {objects: []client.Object{
			at(time.Second, &batchv1.Job{ObjectMeta: meta("train", anna, nil)}), at(0, pod("train-0-", jobs, train, nil)),
		}},
		"released by another ReplicaSet": {message: "its owner, ReplicaSet web-1, took it over", objects: []client.Object{
			at(0, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", anna, nil)}), at(time.Hour, pod("bobs-1-", replicaSet, webSet, nil)),
		}},
		"released by a ReplicaSet of the name": {message: "its owner, ReplicaSet web-1, took it over", objects: []client.Object{
			at(time.Hour, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", anna, nil)}), at(0, pod("web-1-", replicaSet, webSet, nil)),
		}},
		"of a ReplicaSet that another Deployment released": {message: "its owner, Deployment web, took it over", objects: []client.Object{
			at(0, &appsv1.Deployment{ObjectMeta: meta("web", anna, nil)}), at(time.Hour, hash("web-ui-1", "1", web)),
			at(time.Hour, pod("web-ui-1-", replicaSet, ref("apps/v1", "ReplicaSet", "web-ui-1"), nil)),
		}},
		"released by a Job": {message: "its owner, Job train, took it over", objects: []client.Object{
			at(0, &batchv1.Job{ObjectMeta: meta("train", anna, nil)}),
			at(time.Hour, pod("bobs-", jobs, train, map[string]string{batchv1.ControllerUidLabel: "bobs"})),
		}},
		"released by a StatefulSet of the name": {message: "its owner, StatefulSet db, took it over", objects: []client.Object{
			at(time.Hour, &appsv1.StatefulSet{ObjectMeta: meta("db", anna, nil)}), at(0, pod("db-", jobs, ref("apps/v1", "StatefulSet", "db"), nil)),
		}},
		"with her own label": {objects: []client.Object{
			at(time.Hour, &appsv1.StatefulSet{ObjectMeta: meta("db", anna, nil)}), at(0, pod("db-", jobs, ref("apps/v1", "StatefulSet", "db"), ofAnna)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			response := connect(t, newResolver(t, interceptor.Funcs{}, tc.objects...), anna, "pod", "exec")
			if response.Allowed != (tc.message == "") || !response.Allowed && !strings.Contains(response.Result.Message, tc.message) {
				t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
			}
		})
	}
}

// Users write the annotation of the creator on kinds for which admission does not record it, so it says nothing there.
// Guards invariant 4 of the design.
func TestConnectionsThroughOtherKinds(t *testing.T) {
	simulation := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "sim.example.org/v1", "kind": "Simulation"}}
	simulation.SetNamespace(ns)
	simulation.SetName("bobs")
	simulation.SetUID("bobs-uid")
	simulation.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: anna})
	pod := &corev1.Pod{ObjectMeta: meta("pod", jobs, ref("sim.example.org/v1", "Simulation", "bobs"))}
	for name, tc := range map[string]struct {
		templates []v1alpha1.PodTemplates
		message   string
	}{
		"a kind of users": {message: "admission does not record who creates a Simulation.sim.example.org"},
		"an added kind": {templates: []v1alpha1.PodTemplates{
			{Kind: "Simulation.sim.example.org", Resource: "simulations", Paths: []string{"spec.template"}},
		}},
		"another added kind": {message: "admission does not record", templates: []v1alpha1.PodTemplates{
			{Kind: "Trainer.sim.example.org", Resource: "trainers", Paths: []string{"spec.template"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			resolver := newResolver(t, interceptor.Funcs{}, simulation, pod)
			parameters := &v1alpha1.AdmissionParameters{}
			live, ok := resolver.Live.(client.Client)
			if !ok {
				t.Fatalf("%T writes nothing", resolver.Live)
			}
			if err := live.Get(t.Context(), types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, parameters); err != nil {
				t.Fatal(err)
			}
			parameters.Spec.PodTemplates = tc.templates
			if err := live.Update(t.Context(), parameters); err != nil {
				t.Fatal(err)
			}
			response := connect(t, resolver, anna, "pod", "exec")
			if response.Allowed != (tc.message == "") || !response.Allowed && !strings.Contains(response.Result.Message, tc.message) {
				t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
			}
		})
	}
}

// A pod that got the name while the webhook read the owners is another pod, and the API server would connect to it.
func TestConnectionToReplacedPod(t *testing.T) {
	reads := 0
	replaced := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, object, options...)
		if key.Name == "train-a" {
			if reads++; reads > 1 {
				object.SetUID("another")
			}
		}
		return err
	}}
	response := connect(t, newResolver(t, replaced, objects()...), anna, "train-a", "exec")
	if response.Allowed || !strings.Contains(response.Result.Message, "another pod has got the name meanwhile; try again") {
		t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
	}
	if reads != 2 {
		t.Errorf("%d reads of the pod", reads)
	}
}

// An API server that does not answer refuses the connection.
func TestConnectionFailsClosed(t *testing.T) {
	for _, name := range []string{"train-a", "train", v1alpha1.AdmissionParametersName} {
		broken := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if key.Name == name {
				return context.DeadlineExceeded
			}
			return c.Get(ctx, key, object, options...)
		}}
		response := connect(t, newResolver(t, broken, objects()...), anna, "train-a", "exec")
		if response.Allowed || response.Result.Code != http.StatusInternalServerError {
			t.Errorf("%s: allowed = %v: %+v", name, response.Allowed, response.Result)
		}
	}
}

// No pod gets the label of another creator, by which that user's Services would select it.
func TestLabeledPods(t *testing.T) {
	resolver := newResolver(t, interceptor.Funcs{}, objects()...)
	for name, tc := range map[string]struct {
		user, label string
		owner       *metav1.OwnerReference
		message     string
	}{
		"own pod":                           {user: anna, label: v1alpha1.CreatorLabel(anna)},
		"pod without the label":             {user: anna},
		"own Deployment":                    {user: replicaSet, label: v1alpha1.CreatorLabel(anna), owner: ref("apps/v1", "ReplicaSet", "web-1")},
		"own CronJob":                       {user: jobs, label: v1alpha1.CreatorLabel(anna), owner: ref("batch/v1", "Job", "nightly-1")},
		"pod with another's label":          {user: bob, label: v1alpha1.CreatorLabel(anna), message: "set it to " + v1alpha1.CreatorLabel(bob)},
		"template with another's label":     {user: jobs, label: v1alpha1.CreatorLabel(bob), owner: ref("batch/v1", "Job", "train"), message: "is not the label of " + anna},
		"forged owner":                      {user: bob, label: v1alpha1.CreatorLabel(anna), owner: ref("batch/v1", "Job", "train"), message: "is not the label of " + bob},
		"owner of the same name":            {user: jobs, label: v1alpha1.CreatorLabel(anna), owner: &metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "former", Controller: ptr.To(true)}, message: "the creator of the pod's workload is not known"},
		"empty label":                       {user: anna, label: "-", message: "remove the label"},
		"ServiceAccount with another's one": {user: account, label: v1alpha1.CreatorLabel(anna), message: "is not the label of " + account},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: meta("new", "", tc.owner)}
			if tc.label != "" {
				pod.Labels = map[string]string{v1alpha1.LabelCreator: strings.TrimPrefix(tc.label, "-")}
			}
			raw, err := json.Marshal(&pod)
			if err != nil {
				t.Fatal(err)
			}
			response := (&workload.PodCreatorValidator{Claims: &workload.ClaimReader{Creators: resolver}}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: ns, UserInfo: authenticationv1.UserInfo{Username: tc.user}, Object: runtime.RawExtension{Raw: raw},
			}})
			if response.Allowed != (tc.message == "") || !response.Allowed && !strings.Contains(response.Result.Message, tc.message) {
				t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
			}
		})
	}
}
