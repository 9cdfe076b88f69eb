// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/podgroup"
)

const (
	podgrouper    = "system:serviceaccount:kai-scheduler:pod-grouper"
	lifecycleUser = "system:serviceaccount:sluice-system:lifecycle"
)

// newMutator is of a cluster in which project thesis has namespace work and the
// pools a and b, and project poor has namespace alms and none of KAI's.
func newMutator(t *testing.T) *podgroup.Mutator {
	t.Helper()
	types, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	pool := func(name string, scheduler v1alpha1.Scheduler) *v1alpha1.NodePool {
		return &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: scheduler, NodeSelector: map[string]string{"kai.scheduler/node-pool": name}},
		}
	}
	project := func(name, namespace string, pools ...string) *v1alpha1.Project {
		p := &v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.ProjectSpec{Department: "students", Namespace: namespace},
			Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: namespace}},
		}
		for _, pool := range pools {
			p.Spec.NodePools = append(p.Spec.NodePools, v1alpha1.PoolQuota{Name: pool})
		}
		return p
	}
	cache := fake.NewClientBuilder().WithScheme(types).WithObjects(
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		pool("a", v1alpha1.SchedulerKAI), pool("b", v1alpha1.SchedulerKAI), pool("plain", v1alpha1.SchedulerKube),
		project("thesis", "work", "plain", "a", "b"), project("poor", "alms", "plain"),
	).WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, func(object client.Object) []string {
		p, _ := object.(*v1alpha1.Project)
		return []string{p.Status.Namespace.Name}
	}).Build()
	return &podgroup.Mutator{Tenants: &evaluation.TenantResolver{Cache: cache}}
}

// writeGroup is what becomes of a group that the user writes.
func writeGroup(t *testing.T, user, namespace, before, after string) (string, admission.Response) {
	t.Helper()
	request := admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: namespace}
	request.UserInfo.Username = user
	for target, text := range map[*runtime.RawExtension]string{&request.Object: after, &request.OldObject: before} {
		if text == "" {
			continue
		}
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		target.Raw = raw
	}
	if before != "" {
		request.Operation = admissionv1.Update
	}
	response := newMutator(t).Handle(t.Context(), admission.Request{AdmissionRequest: request})
	raw := request.Object.Raw
	if response.Patch != nil {
		steps, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = steps.Apply(raw); err != nil {
			t.Fatalf("%s: %v", response.Patch, err)
		}
	}
	written, err := yaml.JSONToYAML(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(written), response
}

// Each file of testdata is a group as the podgrouper writes it, what of it was there
// before, and what is to become of it.
func TestMutatePodGroups(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var example struct {
				User, Namespace      string
				Before, Write, Store json.RawMessage
			}
			if err := yaml.UnmarshalStrict(raw, &example); err != nil {
				t.Fatal(err)
			}
			if example.User == "" {
				example.User = podgrouper
			}
			if example.Namespace == "" {
				example.Namespace = "work"
			}
			got, response := writeGroup(t, example.User, example.Namespace, string(example.Before), string(example.Write))
			if !response.Allowed {
				t.Fatalf("denied: %s", response.Result.Message)
			}
			want, err := yaml.JSONToYAML(example.Store)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			// The stored group does not change again.
			if second, _ := writeGroup(t, lifecycleUser, example.Namespace, got, got); second != got {
				t.Errorf("the second mutation returned\n%s", second)
			}
		})
	}
}

// A new group in a namespace without a project is rejected; a change of one is admitted.
func TestNamespaceWithoutProject(t *testing.T) {
	const group = "{metadata: {name: pg}, spec: {queue: x}}"
	if _, response := writeGroup(t, podgrouper, "elsewhere", "", group); response.Allowed || !strings.Contains(response.Result.Message, "no project owns namespace elsewhere yet") {
		t.Errorf("a new group: %+v", response)
	}
	if _, response := writeGroup(t, podgrouper, "elsewhere", group, group); !response.Allowed || response.Patch != nil {
		t.Errorf("an update: %+v", response)
	}
}

func TestOtherOperationsAreAllowed(t *testing.T) {
	for name, request := range map[string]admissionv1.AdmissionRequest{
		"a status":   {Operation: admissionv1.Update, SubResource: "status"},
		"a deletion": {Operation: admissionv1.Delete},
	} {
		response := newMutator(t).Handle(t.Context(), admission.Request{AdmissionRequest: request})
		if !response.Allowed || response.Patch != nil {
			t.Errorf("%s: %+v", name, response)
		}
	}
}
