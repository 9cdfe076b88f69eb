// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// tenancyTest has two departments and the users who write their objects, with the warnings
// that they get. RBAC lets all of them write Departments and Projects, so that only
// admission restricts them.
type tenancyTest struct {
	// dean administers arts, rector administers arts and sciences, root administers all
	// departments, eve none, and rita manages one project of arts.
	dean, rector, root, eve, rita *userClient
}

// userClient is a client with the identity of a user.
type userClient struct {
	client.Client
	warnings *warningRecorder
}

// warningRecorder records the warnings of the API server.
type warningRecorder struct {
	mu       sync.Mutex
	messages []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (r *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, text)
}

// drain returns the warnings since the last call.
func (r *warningRecorder) drain() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.messages = nil }()
	return strings.Join(r.messages, "\n")
}

const (
	arts     = "tenants-arts"
	sciences = "tenants-sciences"
	// managedProject is a project of arts.
	managedProject = "tenants-managed"
)

func newTenancyTest(t *testing.T) *tenancyTest {
	t.Helper()
	sharedCluster.createDepartment(t, arts, newPoolQuota("dgx", "2", "40"))
	sharedCluster.createDepartment(t, sciences, newPoolQuota("dgx", "1", "20"))
	write := []string{"get", "list", "watch", "create", "update", "patch", "delete"} // "*" would include the verb manage
	grantAccess(t, "tenants-write", rbacv1.PolicyRule{Resources: []string{"departments", "projects"}, Verbs: write},
		"tenants-dean", "tenants-rector", "tenants-root", "tenants-eve", "tenants-rita")
	grantAccess(t, "tenants-managed", rbacv1.PolicyRule{Resources: []string{"projects"}, ResourceNames: []string{managedProject}, Verbs: []string{"manage"}}, "tenants-rita")
	administer := rbacv1.PolicyRule{Resources: []string{"departments/projects"}, Verbs: []string{"administer"}}
	grantAccess(t, "tenants-all", administer, "tenants-root")
	administer.ResourceNames = []string{arts}
	grantAccess(t, "tenants-arts", administer, "tenants-dean", "tenants-rector")
	administer.ResourceNames = []string{sciences}
	grantAccess(t, "tenants-sciences", administer, "tenants-rector")
	return &tenancyTest{
		dean: newUserClient(t, "tenants-dean"), rector: newUserClient(t, "tenants-rector"),
		root: newUserClient(t, "tenants-root"), eve: newUserClient(t, "tenants-eve"), rita: newUserClient(t, "tenants-rita"),
	}
}

// grantAccess grants the rule to the users, in Sluice's API group.
func grantAccess(t *testing.T, name string, rule rbacv1.PolicyRule, users ...string) {
	t.Helper()
	rule.APIGroups = []string{v1alpha1.Group}
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	create(t, binding)
}

// newUserClient returns a client for the user. It waits until the user may list Projects.
func newUserClient(t *testing.T, name string) *userClient {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c := &userClient{warnings: &warningRecorder{}}
	config.WarningHandler = c.warnings
	c.Client = clientFor(t, config)
	eventually(t, func() error { return c.List(t.Context(), &v1alpha1.ProjectList{}) })
	return c
}

// mutation changes a Project or a Department.
type mutation[T client.Object] = func(T)

// patchAs changes the object as the user of the client.
func patchAs[T client.Object](t *testing.T, as *userClient, object T, change mutation[T], options ...client.PatchOption) error {
	t.Helper()
	if err := sharedCluster.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	before, ok := object.DeepCopyObject().(T)
	if !ok {
		t.Fatalf("the copy of a %T has another type", object)
	}
	change(object)
	return as.Patch(t.Context(), object, client.MergeFrom(before), options...)
}

// expectRejection fails the test unless the error is of the expected kind and contains all
// texts.
func expectRejection(t *testing.T, err error, isExpected func(error) bool, texts ...string) {
	t.Helper()
	if err == nil || !isExpected(err) {
		t.Fatalf("err = %v, want a rejection that contains %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoes not contain %q", err, text)
		}
	}
}

// newArtsProject returns a project of department arts.
func newArtsProject(name, guaranteed, limit string, changes ...mutation[*v1alpha1.Project]) *v1alpha1.Project {
	return newProject(name, append([]mutation[*v1alpha1.Project]{func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools = arts, []v1alpha1.PoolQuota{newPoolQuota("dgx", guaranteed, limit)}
	}}, changes...)...)
}

func departmentNamed(name string) *v1alpha1.Department {
	return &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func withGuaranteed[T client.Object](gpus string) mutation[T] {
	return func(object T) {
		switch o := client.Object(object).(type) {
		case *v1alpha1.Project:
			o.Spec.NodePools[0].GPU.Guaranteed = resource.MustParse(gpus)
		case *v1alpha1.Department:
			o.Spec.NodePools[0].GPU.Guaranteed = resource.MustParse(gpus)
		}
	}
}

// Admission validates what users write to departments and projects. Guards invariant 4 of
// the design: a Project that names another user's namespace or department.
func TestTenancyValidation(t *testing.T) {
	t.Parallel()
	w := newTenancyTest(t)
	t.Run("administrators of the department write its projects", w.testProjects)
	t.Run("managers of the project write its members and quotas", w.testManagers)
	t.Run("system administrators write departments", w.testDepartments)
	t.Run("no privilege escalation", w.testPrivilegeEscalation)
	t.Run("quota sums are enforced", w.testQuotaSums)
	t.Run("CPU and memory sums are enforced", w.testResources)
	t.Run("allowed oversubscription", w.testOversubscription)
	t.Run("change of the department", w.testDepartmentChange)
	t.Run("reduction below the usage", w.testQuotaReduction)
	t.Run("immutable fields", w.testImmutableFields)
}

func (w *tenancyTest) testProjects(t *testing.T) {
	expectRejection(t, w.eve.Create(t.Context(), newArtsProject("tenants-none", "0", "1")), apierrors.IsForbidden, "tenants-eve does not administer department "+arts)
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", inNamespace("kube-system"))), apierrors.IsInvalid, "spec.namespace", "kube-* cannot be a project's")
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", inNamespace("gpu-operator"))), apierrors.IsInvalid, "spec.namespace", "belongs to the system")
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", inNamespace("thesis-mueller"))), apierrors.IsInvalid, "spec.namespace", "one namespace has one project")
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", func(p *v1alpha1.Project) { p.Spec.Department = sciences })), apierrors.IsForbidden, "does not administer department "+sciences)

	p := newArtsProject("tenants-own", "0", "1")
	if err := w.dean.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, p) })
	for name, change := range map[string]mutation[*v1alpha1.Project]{
		"a member": func(p *v1alpha1.Project) {
			p.Spec.Members = members("tenants-eve", v1alpha1.RoleDepartmentAdministrator)
		},
		"a label":       func(p *v1alpha1.Project) { p.Labels = map[string]string{"tier": "gold"} },
		"an annotation": func(p *v1alpha1.Project) { p.Annotations = map[string]string{"tier": "gold"} },
		"an exemption":  func(p *v1alpha1.Project) { p.Spec.Exempt = &v1alpha1.Exception{Reason: "I say so"} },
	} {
		expectRejection(t, patchAs(t, w.eve, p, change), apierrors.IsForbidden, "tenants-eve does not administer department "+arts)
		if err := patchAs(t, w.dean, p, change); err != nil {
			t.Errorf("write %s as the dean: %v", name, err)
		}
	}
	waitForProjectReady(t, p) // with the finalizer, which only lifecycle may remove
	withoutFinalizers := func(p *v1alpha1.Project) { p.Finalizers = nil }
	expectRejection(t, patchAs(t, w.eve, p, withoutFinalizers), apierrors.IsForbidden, "tenants-eve does not administer")
	// In a new cluster the API server knows the admission policies after a moment.
	eventuallyRejected(t, func() error { return w.eve.Delete(t.Context(), p, client.DryRunAll) }, "belongs to department "+arts)
	expectRejection(t, w.eve.Delete(t.Context(), p), apierrors.IsForbidden, "belongs to department "+arts, "tenants-eve does not administer that")
	if err := w.dean.Delete(t.Context(), p); err != nil {
		t.Errorf("delete the project as the dean: %v", err)
	}
	eventually(t, func() error { return checkDeleted(t.Context(), p) })
}

// testManagers covers what a user may write who only manages the project.
func (w *tenancyTest) testManagers(t *testing.T) {
	p := create(t, newArtsProject(managedProject, "500m", "2", func(p *v1alpha1.Project) { p.Spec.Members = members("tenants-ed", v1alpha1.RoleEditor) }))
	addMember := func(role v1alpha1.Role) mutation[*v1alpha1.Project] {
		return func(p *v1alpha1.Project) { p.Spec.Members = append(p.Spec.Members, members("tenants-kim", role)...) }
	}
	withPoolQuota := func(guaranteed, limit string) mutation[*v1alpha1.Project] {
		return func(p *v1alpha1.Project) { p.Spec.NodePools[0] = newPoolQuota("dgx", guaranteed, limit) }
	}
	withMaxRuntime := func(maxRuntime string) mutation[*v1alpha1.Project] {
		return func(p *v1alpha1.Project) {
			p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{v1alpha1.WorkloadTrain: {MaxRuntime: ptr.To(period.MustParseDuration(maxRuntime))}}
		}
	}
	eventually(t, func() error { return patchAs(t, w.rita, p, addMember(v1alpha1.RoleL2Researcher), client.DryRunAll) })
	for name, change := range map[string]mutation[*v1alpha1.Project]{
		"more GPUs":      withPoolQuota("1", "4"),
		"a quota of CPU": func(p *v1alpha1.Project) { p.Spec.Resources.CPU = ptr.To(resource.MustParse("4")) },
	} {
		if err := patchAs(t, w.rita, p, change, client.DryRunAll); err != nil {
			t.Errorf("write %s as rita: %v", name, err)
		}
	}
	if err := patchAs(t, w.rita, p, withMaxRuntime("12h")); err != nil {
		t.Errorf("lower a time limit as rita: %v", err)
	}
	for _, tc := range []struct {
		change     mutation[*v1alpha1.Project]
		isExpected func(error) bool
		messages   []string
	}{
		{func(p *v1alpha1.Project) { p.Spec.Members = nil }, apierrors.IsInvalid, []string{"without User tenants-ed", "removes the role editor"}},
		{withPoolQuota("3", "4"), apierrors.IsInvalid, []string{"spec.nodePools[0].gpu.guaranteed", "is guaranteed 2 GPUs"}},
		{withPoolQuota("0", "41"), apierrors.IsInvalid, []string{"spec.nodePools[0].gpu.limit", "40 GPUs"}},
		{withMaxRuntime("13h"), apierrors.IsForbidden, []string{"spec.workloads[train].maxRuntime", "the project has 12h"}},
		{func(p *v1alpha1.Project) { p.Spec.Workloads = nil }, apierrors.IsForbidden, []string{"spec.workloads[train].maxRuntime", "the project has 12h"}},
	} {
		expectRejection(t, patchAs(t, w.rita, p, tc.change, client.DryRunAll), tc.isExpected, tc.messages...)
	}
	either := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
	expectRejection(t, w.rita.Delete(t.Context(), p), either, "tenants-rita does not administer", arts)
	expectRejection(t, w.rita.Create(t.Context(), newArtsProject("tenants-none", "0", "1")), apierrors.IsForbidden, "tenants-rita does not administer department "+arts)
	other := create(t, newArtsProject("tenants-unmanaged", "0", "1"))
	expectRejection(t, patchAs(t, w.rita, other, addMember(v1alpha1.RoleViewer)), apierrors.IsForbidden, "does not manage the project either")
}

func members(name string, role v1alpha1.Role) []v1alpha1.Member {
	return []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: name, Role: role}}
}

func (w *tenancyTest) testDepartments(t *testing.T) {
	department := departmentNamed("tenants-created")
	for _, c := range []*userClient{w.dean, w.rector, w.eve} {
		expectRejection(t, c.Create(t.Context(), department.DeepCopy()), apierrors.IsForbidden, "only system administrators create and delete departments")
		expectRejection(t, c.Delete(t.Context(), departmentNamed(sciences)), apierrors.IsForbidden, "only system administrators create and delete departments")
	}
	if err := w.root.Create(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	if err := w.root.Delete(t.Context(), department); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]mutation[*v1alpha1.Department]{
		"spec.nodePools":        withGuaranteed[*v1alpha1.Department]("3"),
		"spec.oversubscription": func(d *v1alpha1.Department) { d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow },
		"spec.podSecurity":      func(d *v1alpha1.Department) { d.Spec.PodSecurity = v1alpha1.PodSecurityPrivileged },
		"spec.workloads":        func(d *v1alpha1.Department) { d.Spec.Workloads = nil },
		"spec.projects":         func(d *v1alpha1.Department) { d.Spec.Projects.AtExpiry = v1alpha1.ExpiryConfirm },
		"metadata.labels":       func(d *v1alpha1.Department) { d.Labels = map[string]string{"tier": "gold"} },
	} {
		expectRejection(t, patchAs(t, w.dean, departmentNamed(arts), change, client.DryRunAll), apierrors.IsForbidden, field, "only system administrators change it", "spec.members")
		if err := patchAs(t, w.root, departmentNamed(arts), change, client.DryRunAll); err != nil {
			t.Errorf("change %s as root: %v", field, err)
		}
	}
	changeMembers := func(d *v1alpha1.Department) {
		d.Spec.Members = members("kim@example.org", v1alpha1.RoleDepartmentAdministrator)
		d.Spec.Contacts = []v1alpha1.Contact{{Name: "Desk", Email: "desk@example.org"}}
		d.Spec.Notices.Language = "de"
	}
	if err := patchAs(t, w.dean, departmentNamed(arts), changeMembers, client.DryRunAll); err != nil {
		t.Errorf("change the members of arts as the dean: %v", err)
	}
	expectRejection(t, patchAs(t, w.dean, departmentNamed(sciences), changeMembers, client.DryRunAll), apierrors.IsForbidden, "tenants-dean does not administer it")
}

func (w *tenancyTest) testPrivilegeEscalation(t *testing.T) {
	addEve := func(d *v1alpha1.Department) {
		d.Spec.Members = members("tenants-eve", v1alpha1.RoleDepartmentAdministrator)
	}
	expectRejection(t, patchAs(t, w.eve, departmentNamed(arts), addEve), apierrors.IsForbidden, "tenants-eve does not administer it")
	serviceAccountMember := func(name string) []v1alpha1.Member {
		return []v1alpha1.Member{{Kind: v1alpha1.MemberServiceAccount, Namespace: "thesis-mueller", Name: name, Role: v1alpha1.RoleDepartmentAdministrator}}
	}
	expectRejection(t, patchAs(t, w.dean, departmentNamed(arts), func(d *v1alpha1.Department) { d.Spec.Members = serviceAccountMember("default") }), apierrors.IsInvalid,
		"spec.members[0].role", "every user who can run pods in project thesis-mueller (namespace thesis-mueller) would administer the department")
	disguised := func(p *v1alpha1.Project) {
		p.Spec.Members = members("system:serviceaccount:thesis-mueller:default", v1alpha1.RoleEditor)
	}
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", disguised)), apierrors.IsInvalid, "spec.members[0].name", "use kind ServiceAccount")
	owner := func(p *v1alpha1.Project) { p.Spec.Owners[0].User = "system:kube-scheduler" }
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", owner)), apierrors.IsInvalid, "spec.owners[0].user", "an owner is a person")
	w.dean.warnings.drain()
	guest := func(p *v1alpha1.Project) {
		p.Spec.Members = serviceAccountMember("default")
		p.Spec.Members[0].Role = v1alpha1.RoleEditor
	}
	if err := w.dean.Create(t.Context(), newArtsProject("tenants-none", "0", "1", guest), client.DryRunAll); err != nil {
		t.Error(err)
	}
	if got := w.dean.warnings.drain(); !strings.Contains(got, "every user who can run pods in project thesis-mueller (namespace thesis-mueller) will have the role editor") {
		t.Errorf("warnings = %q", got)
	}
}

func (w *tenancyTest) testQuotaSums(t *testing.T) {
	first := create(t, newArtsProject("tenants-first", "1500m", "4"))
	second := newArtsProject("tenants-second", "1", "4")
	const figures = "department tenants-arts is guaranteed 2 GPUs in node pool dgx and has promised 1500m to other projects (tenants-first 1500m): it requests 1, and 500m is left"
	eventuallyRejected(t, func() error { return w.dean.Create(t.Context(), second.DeepCopy(), client.DryRunAll) }, "spec.nodePools[0].gpu.guaranteed", figures)
	expectRejection(t, w.dean.Create(t.Context(), newArtsProject("tenants-second", "0", "41")), apierrors.IsInvalid, "spec.nodePools[0].gpu.limit", "must not be more than the limit of department tenants-arts in node pool dgx, 40 GPUs")
	withGuaranteed[*v1alpha1.Project]("500m")(second)
	if err := w.dean.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, second) })
	expectRejection(t, patchAs(t, w.dean, second, withGuaranteed[*v1alpha1.Project]("501m")), apierrors.IsInvalid, "it requests 501m, and 500m is left")

	// The department in turn must keep enough quota for what it promised.
	eventuallyRejected(t, func() error {
		return patchAs(t, w.root, departmentNamed(arts), withGuaranteed[*v1alpha1.Department]("1"), client.DryRunAll)
	}, "spec.nodePools[0].gpu.guaranteed", "were promised 2 GPUs in node pool dgx (tenants-first 1500m, tenants-second 500m), 1 more than that")
	expectRejection(t, patchAs(t, w.root, departmentNamed(arts), func(d *v1alpha1.Department) { d.Spec.NodePools[0].GPU.Limit = resource.MustParse("3") }), apierrors.IsInvalid,
		"spec.nodePools[0].gpu.limit", "first lower those of tenants-first 4, tenants-second 4")
	expectRejection(t, patchAs(t, w.root, departmentNamed(arts), func(d *v1alpha1.Department) { d.Spec.NodePools = nil }), apierrors.IsInvalid,
		"spec.nodePools", "node pool dgx cannot be removed while projects name it", "tenants-first, tenants-second")

	// Released quota can be promised again at once.
	deleteAndWait(t, first)
	if err := w.dean.Create(t.Context(), newArtsProject("tenants-third", "1500m", "4"), client.DryRunAll); err != nil {
		t.Errorf("promise the remaining quota: %v", err)
	}
	w.root.warnings.drain()
	if err := patchAs(t, w.root, departmentNamed(arts), func(d *v1alpha1.Department) { d.Spec.NodePools[0] = newPoolQuota("dgx", "9", "41") }, client.DryRunAll); err != nil {
		t.Error(err)
	}
	if got := w.root.warnings.drain(); !strings.Contains(got, "node pool dgx has 8 GPUs, and ") {
		t.Errorf("more than the node pool has: warnings = %q", got)
	}
}

// eventuallyRejected waits until the webhook, whose cache lags, rejects the dry run with all
// texts.
func eventuallyRejected(t *testing.T, attempt func() error, texts ...string) {
	t.Helper()
	eventually(t, func() error {
		err := attempt()
		if err == nil {
			return fmt.Errorf("the request was accepted, want a rejection that contains %q", texts)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				return fmt.Errorf("%w\ndoes not contain %q", err, text)
			}
		}
		return nil
	})
}

func (w *tenancyTest) testResources(t *testing.T) {
	d := departmentNamed("tenants-cpu")
	d.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse("8")), Memory: ptr.To(resource.MustParse("64Gi"))}
	create(t, d)
	projectWith := func(name, cpu, memory string) *v1alpha1.Project {
		return newProject(name, func(p *v1alpha1.Project) {
			p.Spec.Department, p.Spec.NodePools = d.Name, nil
			p.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
		})
	}
	create(t, projectWith("tenants-cpu-first", "6", "32Gi"))
	eventuallyRejected(t, func() error {
		return w.root.Create(t.Context(), projectWith("tenants-cpu-second", "3", "40Gi"), client.DryRunAll)
	},
		"spec.resources.cpu", "has 8 cores and has promised 6 to other projects (tenants-cpu-first 6): it requests 3, and 2 is left",
		"spec.resources.memory", "has 64Gi of memory and has promised 32Gi to other projects (tenants-cpu-first 32Gi): it requests 40Gi, and 32Gi is left")
	without := projectWith("tenants-cpu-second", "1", "1Gi")
	without.Spec.Resources.Memory = nil
	expectRejection(t, w.root.Create(t.Context(), without), apierrors.IsInvalid, "spec.resources.memory: Required value", "each of its projects needs one; 32Gi is left")
	expectRejection(t, patchAs(t, w.root, d, func(d *v1alpha1.Department) { d.Spec.Resources.CPU = ptr.To(resource.MustParse("5")) }), apierrors.IsInvalid,
		"spec.resources.cpu", "were promised 6 cores (tenants-cpu-first 6), 1 more than that")
}

func (w *tenancyTest) testOversubscription(t *testing.T) {
	const name = "tenants-lavish"
	sharedCluster.createDepartment(t, name, newPoolQuota("dgx", "1", "4"))
	allow := func(rule v1alpha1.Oversubscription) mutation[*v1alpha1.Department] {
		return func(d *v1alpha1.Department) { d.Spec.Oversubscription = rule }
	}
	projectNamed := func(project string) *v1alpha1.Project {
		return newArtsProject(project, "1", "4", func(p *v1alpha1.Project) { p.Spec.Department = name })
	}
	create(t, projectNamed("tenants-lavish-first"))
	eventuallyRejected(t, func() error {
		return w.root.Create(t.Context(), projectNamed("tenants-lavish-second"), client.DryRunAll)
	}, "is guaranteed 1 GPU", "is limited to 4 GPUs in node pool dgx, where each project is counted alone,", "nothing is left", "set its spec.oversubscription to Allow")
	if err := patchAs(t, w.root, departmentNamed(name), allow(v1alpha1.OversubscriptionAllow)); err != nil {
		t.Fatal(err)
	}
	w.root.warnings.drain()
	second := projectNamed("tenants-lavish-second")
	if err := w.root.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, second) })
	if got := w.root.warnings.drain(); !strings.Contains(got, "the department allows that") {
		t.Errorf("warnings = %q", got)
	}
	eventuallyRejected(t, func() error {
		return patchAs(t, w.root, departmentNamed(name), allow(v1alpha1.OversubscriptionDeny), client.DryRunAll)
	}, "were promised 2 GPUs in node pool dgx (tenants-lavish-first 1, tenants-lavish-second 1), 1 more than that; lower their quotas first, or set spec.oversubscription to Allow")
}

func (w *tenancyTest) testDepartmentChange(t *testing.T) {
	p := create(t, newArtsProject("tenants-mover", "1", "2"))
	to := func(department string) mutation[*v1alpha1.Project] {
		return func(p *v1alpha1.Project) { p.Spec.Department = department }
	}
	expectRejection(t, patchAs(t, w.dean, p, to(sciences)), apierrors.IsForbidden, "does not administer department "+sciences, "moving a project from "+arts+" to "+sciences+" requires both")
	expectRejection(t, patchAs(t, w.rector, p, to("h2-all")), apierrors.IsForbidden, "does not administer department h2-all")
	existing := create(t, newArtsProject("tenants-settled", "500m", "1", to(sciences)))
	eventuallyRejected(t, func() error { return patchAs(t, w.rector, p, to(sciences), client.DryRunAll) }, "department tenants-sciences is guaranteed 1 GPU in node pool dgx and has promised 500m to other projects (tenants-settled 500m): it requests 1, and 500m is left")
	deleteAndWait(t, existing)
	expectRejection(t, patchAs(t, w.root, p, to("h2-students")), apierrors.IsInvalid, "spec.nodePools[0].name", `supported values: "dgx-mig"`)
	if err := patchAs(t, w.rector, p, to(sciences)); err != nil {
		t.Fatalf("move the project as the rector: %v", err)
	}
	eventually(t, func() error {
		ns := newNamespace(p.Name)
		if err := refresh(t, ns); err != nil {
			return err
		}
		if got := ns.Labels[v1alpha1.LabelDepartment]; got != sciences {
			return unexpectedState("the namespace has the label of sciences", ns.Labels)
		}
		return nil
	})
	expectRejection(t, patchAs(t, w.dean, p, func(p *v1alpha1.Project) { p.Spec.Members = nil; p.Spec.Hold = &v1alpha1.Exception{Reason: "mine"} }),
		apierrors.IsForbidden, "tenants-dean does not administer department "+sciences)
}

// A user can reduce a quota below its usage and gets a warning. Running pods continue.
func (w *tenancyTest) testQuotaReduction(t *testing.T) {
	p := create(t, newArtsProject("tenants-reduced", "1", "2"))
	waitForProjectReady(t, p)
	train := create(t, newPod(p.Name, "train", withGPU))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		if use := p.Status.NodePools; len(use) != 1 || use[0].Allocated.String() != "1" {
			return unexpectedState("a GPU is in use", use)
		}
		return nil
	})
	expectUseShown(t, p.Name)
	w.dean.warnings.drain()
	if err := patchAs(t, w.dean, p, func(p *v1alpha1.Project) { p.Spec.NodePools[0] = newPoolQuota("dgx", "500m", "500m") }); err != nil {
		t.Fatalf("reduce the quota below its usage: %v", err)
	}
	const want = "spec.nodePools[0].gpu: it uses 1 GPU of node pool dgx, 500m more than the new limit: running pods continue, but no new GPU pods start until enough have ended"
	if got := w.dean.warnings.drain(); !strings.Contains(got, want) {
		t.Errorf("warnings = %q, want %q", got, want)
	}
	waitForQuotaApplied(t, p)
	if err := refresh(t, train); err != nil || !train.DeletionTimestamp.IsZero() {
		t.Errorf("the running pod: %v, %v", train.DeletionTimestamp, err)
	}
	deletePodNow(t, train)
}

// usedByTrain matches the entry of pod train in the output of kubectl describe.
var usedByTrain = regexp.MustCompile(`Workloads:\s+(Created By:.*\s+)?Gpus:\s+1\s+Kind:\s+Pod\s+Name:\s+train\s+Node Pool:\s+dgx\s+Since:`)

// expectUseShown checks that kubectl shows the use of a project's quota: the allocated GPUs and the
// limit of the node pool, and that pod train holds them.
func expectUseShown(t *testing.T, project string) {
	t.Helper()
	eventually(t, func() error {
		columns := sharedCluster.mustKubectl(t, "get", "slproj/"+project)
		if !strings.Contains(columns, "ALLOCATED OF LIMIT") || !strings.Contains(columns, "dgx 1/2") {
			return unexpectedState("the columns show dgx 1/2", columns)
		}
		if described := sharedCluster.mustKubectl(t, "describe", "slproj/"+project); !usedByTrain.MatchString(described) {
			return unexpectedState("the description names pod train", described)
		}
		return nil
	})
}

// A project keeps its namespace, and its Pod Security cannot be weaker than its
// department's.
func (w *tenancyTest) testImmutableFields(t *testing.T) {
	p := create(t, newArtsProject("tenants-fixed", "0", "1"))
	expectRejection(t, patchAs(t, w.root, p, inNamespace("elsewhere")), apierrors.IsInvalid, "spec.namespace", "cannot be added, changed or removed after creation")
	expectRejection(t, patchAs(t, w.root, p, func(p *v1alpha1.Project) { p.Spec.PodSecurity = v1alpha1.PodSecurityPrivileged }), apierrors.IsInvalid,
		"spec.podSecurity", "department tenants-arts has baseline")
	if err := patchAs(t, w.dean, p, func(p *v1alpha1.Project) { p.Spec.PodSecurity = v1alpha1.PodSecurityRestricted }, client.DryRunAll); err != nil {
		t.Errorf("a stricter level: %v", err)
	}
	// Lifecycle writes its own fields, although it administers no department.
	waitForProjectReady(t, p)
	if !slices.Contains(p.Finalizers, v1alpha1.FinalizerProject) {
		t.Errorf("finalizers = %v", p.Finalizers)
	}
}
