// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/webhook/evaluation"
)

func newTenantResolver(t *testing.T, objects ...client.Object) (*evaluation.TenantResolver, client.Client) {
	t.Helper()
	types, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(types).WithObjects(objects...).
		WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, func(object client.Object) []string {
			if p, ok := object.(*v1alpha1.Project); ok && p.Status.Namespace != nil {
				return []string{p.Status.Namespace.Name}
			}
			return nil
		}).Build()
	return &evaluation.TenantResolver{Cache: c}, c
}

func tenantObjects() []client.Object {
	return []client.Object{
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}}},
		&v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
			Spec: v1alpha1.ProjectSpec{Department: "students", Namespace: "work", NodePools: []v1alpha1.PoolQuota{
				{Name: "dgx", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}},
				{Name: "gone", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("2")}},
			}},
			Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: "work"}},
		},
		// It names the same namespace, and came later: it owns none.
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "rival"}, Spec: v1alpha1.ProjectSpec{Department: "students", Namespace: "work"}},
		&v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx"}},
	}
}

func TestResolveReturnsProjectOfNamespace(t *testing.T) {
	resolver, c := newTenantResolver(t, tenantObjects()...)
	got, err := resolver.Resolve(t.Context(), "work")
	if err != nil {
		t.Fatal(err)
	}
	if got.Project != "thesis" || got.Department != "students" || got.TimeZone.String() != "Europe/Berlin" {
		t.Errorf("%s of %s in %s", got.Project, got.Department, got.TimeZone)
	}
	var pools []struct{ Name string }
	raw, err := json.Marshal(got.Documents.NodePools)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &pools); err != nil || len(pools) != 1 || pools[0].Name != "dgx" {
		t.Errorf("pools %s, %v", raw, err)
	}
	if again, _ := resolver.Resolve(t.Context(), "work"); again != got {
		t.Error("the documents were created again although nothing changed")
	}
	var pool v1alpha1.NodePool
	if err := c.Get(t.Context(), client.ObjectKey{Name: "dgx"}, &pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Sharing = v1alpha1.SharingMIG
	if err := c.Update(t.Context(), &pool); err != nil {
		t.Fatal(err)
	}
	if again, _ := resolver.Resolve(t.Context(), "work"); again == got || again.Version == got.Version {
		t.Error("the documents did not change with the node pool")
	}
}

// Pods without GPUs may run on the nodes of pools that are not the project's, too.
func TestTenantFollowsOtherPools(t *testing.T) {
	resolver, c := newTenantResolver(t, append(tenantObjects(), &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "other"}})...)
	before, err := resolver.Resolve(t.Context(), "work")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		change func(*v1alpha1.NodePoolStatus)
		same   bool
	}{
		{"GPUs", func(status *v1alpha1.NodePoolStatus) { status.GPUs = 8 }, true},
		{"the first node", func(status *v1alpha1.NodePoolStatus) { status.Nodes = 1 }, false},
		{"another node", func(status *v1alpha1.NodePoolStatus) { status.Nodes = 2 }, true},
		{"a taint", func(status *v1alpha1.NodePoolStatus) {
			status.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: "NoSchedule"}}
		}, false},
		{"a resource that no list knows", func(status *v1alpha1.NodePoolStatus) {
			status.UnlistedResources = []v1alpha1.UnlistedResource{{Name: "nvidia.com/a100"}}
		}, false},
	} {
		var pool v1alpha1.NodePool
		if err := c.Get(t.Context(), client.ObjectKey{Name: "other"}, &pool); err != nil {
			t.Fatal(err)
		}
		step.change(&pool.Status)
		if err := c.Update(t.Context(), &pool); err != nil {
			t.Fatal(err)
		}
		after, err := resolver.Resolve(t.Context(), "work")
		if err != nil {
			t.Fatal(err)
		}
		if same := after.Version == before.Version; same != step.same {
			t.Errorf("%s: the version is the same: %v", step.name, same)
		}
		before = after
	}
}

// The status of a busy project changes every few seconds, and its cached responses stay valid.
func TestTenantVersionIsStableWhenOnlyUseChanges(t *testing.T) {
	resolver, c := newTenantResolver(t, tenantObjects()...)
	before, err := resolver.Resolve(t.Context(), "work")
	if err != nil {
		t.Fatal(err)
	}
	update := func(change func(*v1alpha1.Project)) *decision.Tenant {
		t.Helper()
		var project v1alpha1.Project
		if err := c.Get(t.Context(), client.ObjectKey{Name: "thesis"}, &project); err != nil {
			t.Fatal(err)
		}
		change(&project)
		if err := c.Update(t.Context(), &project); err != nil {
			t.Fatal(err)
		}
		tenant, err := resolver.Resolve(t.Context(), "work")
		if err != nil {
			t.Fatal(err)
		}
		return tenant
	}
	busy := update(func(project *v1alpha1.Project) { project.Status.GPU.Allocated = resource.MustParse("1") })
	if before.Documents.Use.Equal(busy.Documents.Use) {
		t.Error("input.use is not up to date")
	}
	if busy.Version != before.Version {
		t.Error("the version changed with the project's use")
	}
	if expired := update(func(project *v1alpha1.Project) { project.Status.Phase = v1alpha1.ProjectExpired }); expired.Version == before.Version {
		t.Error("the version is the same for an expired project")
	}
}

func TestResolveReturnsNilWithoutProject(t *testing.T) {
	resolver, _ := newTenantResolver(t, tenantObjects()...)
	if got, err := resolver.Resolve(t.Context(), "default"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestResolveFailsWithoutDepartment(t *testing.T) {
	resolver, _ := newTenantResolver(t, tenantObjects()[1:]...)
	if got, err := resolver.Resolve(t.Context(), "work"); got != nil || err == nil {
		t.Errorf("%v, %v", got, err)
	}
}
