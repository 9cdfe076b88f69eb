// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The faculty has two projects. Its users are named after their roles: the dean, the auditor
// (its viewer) and the head (its research manager) are members of the department, and the
// others are members of the lab. The institute is another department with its own users.
const (
	faculty, institute                  = "faculty", "institute"
	lab, seminar, elsewhere             = "lab", "seminar", "workshop"
	deanUser, auditorUser               = "the-dean", "the-auditor"
	headUser                            = "the-head"
	l1User, l2User, secondL2User        = "the-l1", "the-l2", "another-l2"
	editorUser, engineerUser            = "the-editor", "the-engineer"
	viewerUser, managerUser             = "the-viewer", "the-manager"
	ownerUser, systemUser, ordinaryUser = "the-owner", "the-system-administrator", "a-user"
)

// newMember returns a member with that user name and role.
func newMember(name string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role}
}

// createUniversity creates the departments, projects and users, and waits until the users
// have their rights.
func createUniversity(t *testing.T) {
	t.Helper()
	for department, departmentMembers := range map[string][]v1alpha1.Member{
		faculty:   {newMember(deanUser, v1alpha1.RoleDepartmentAdministrator), newMember(auditorUser, v1alpha1.RoleDepartmentViewer), newMember(headUser, v1alpha1.RoleResearchManager)},
		institute: {newMember("the-director", v1alpha1.RoleDepartmentAdministrator)},
	} {
		create(t, &v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: department},
			Spec:       v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4")}, Members: departmentMembers},
		})
	}
	for name, department := range map[string]string{lab: faculty, seminar: faculty, elsewhere: institute} {
		sharedCluster.createGovernedProject(t, department, name, newPoolQuota("dgx", "0", "1"))
	}
	updateProjectWithRetry(t, lab, func(p *v1alpha1.Project) {
		p.Spec.Owners[0].User = ownerUser
		p.Spec.Members = []v1alpha1.Member{
			newMember(editorUser, v1alpha1.RoleEditor), newMember(managerUser, v1alpha1.RoleResearchManager),
			newMember(l1User, v1alpha1.RoleL1Researcher), newMember(l2User, v1alpha1.RoleL2Researcher), newMember(secondL2User, v1alpha1.RoleL2Researcher),
			newMember(engineerUser, v1alpha1.RoleMLEngineer), newMember(viewerUser, v1alpha1.RoleViewer),
		}
	})
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: systemUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:system-administrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: systemUser}},
	})
	for _, user := range []string{deanUser, auditorUser, headUser, l1User, l2User, secondL2User, editorUser, engineerUser, viewerUser, managerUser, ownerUser, systemUser} {
		waitForAccess(t, user, "list pods", true)
	}
}

// updateProjectWithRetry changes a project and retries on conflicts with other writers.
func updateProjectWithRetry(t *testing.T, name string, change func(*v1alpha1.Project)) {
	t.Helper()
	eventually(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := refresh(t, p); err != nil {
			return err
		}
		change(p)
		return sharedCluster.adminClient.Update(t.Context(), p)
	})
}

// clusterScopedKinds lists the cluster-scoped resources in the tables below.
var clusterScopedKinds = []string{
	"projects.sluice.dev", "projects/status.sluice.dev", "departments.sluice.dev", "departments/projects.sluice.dev", "departments/status.sluice.dev",
	"nodepools.sluice.dev", "policies.sluice.dev", "gpunodes.sluice.dev", "usagerecords.sluice.dev", "notices.sluice.dev", "nodes", "clusterroles.rbac.authorization.k8s.io",
	"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "queues.scheduling.run.ai", "validatingadmissionpolicies.admissionregistration.k8s.io",
}

// canI asks the API server, as the user, about a right: "create jobs.batch" is in the lab,
// "get pods in workshop" in another namespace, "get projects.sluice.dev lab" for one name.
func canI(ctx context.Context, user, right string) (bool, error) {
	words := strings.Fields(right)
	kind, group, _ := strings.Cut(words[1], ".")
	resource, subresource, _ := strings.Cut(kind, "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: lab, Verb: words[0], Group: group, Resource: resource, Subresource: subresource}
	switch rest := words[2:]; {
	case len(rest) == 2 && rest[0] == "in":
		attributes.Namespace = rest[1]
	case len(rest) == 1:
		attributes.Name = rest[0]
	case len(rest) > 0:
		return false, fmt.Errorf("invalid right %q", right)
	}
	if slices.Contains(clusterScopedKinds, words[1]) {
		attributes.Namespace = ""
	}
	review, err := kubernetes.NewForConfigOrDie(userConfig(user)).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func userConfig(user string) *rest.Config {
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func waitForAccess(t *testing.T, user, right string, want bool) {
	t.Helper()
	eventually(t, func() error {
		got, err := canI(t.Context(), user, right)
		if err == nil && got != want {
			err = unexpectedState(fmt.Sprintf("%s may %s: %v", user, right, want), got)
		}
		return err
	})
}

// accessTable lists the rights that each role has and does not have, as in
// docs/platform/roles.md.
var accessTable = []struct {
	user        string
	may, mayNot []string
}{
	{
		viewerUser,
		[]string{
			"get pods", "list jobs.batch", "watch deployments.apps", "get pods/log", "list events", "list configmaps", "list persistentvolumeclaims",
			"list resourcequotas", "list networkpolicies.networking.k8s.io", "list localqueues.kueue.x-k8s.io", "list workloads.kueue.x-k8s.io",
			"list workloadclocks.sluice.dev", "list extensions.sluice.dev", "get namespaces lab", "get projects.sluice.dev lab",
			"list presets.sluice.dev", "list presets.sluice.dev in sluice-system",
			"get nodepools.sluice.dev dgx",
		},
		[]string{
			"get nodepools.sluice.dev dgx-mig", "list nodepools.sluice.dev", "update nodepools.sluice.dev dgx",
			"create pods", "delete pods", "patch jobs.batch", "create pods/exec", "create pods/portforward", "list secrets", "get secrets", "create extensions.sluice.dev",
			"list projects.sluice.dev", "get projects.sluice.dev seminar", "get departments.sluice.dev faculty", "list pods in seminar", "list usagerecords.sluice.dev", "list notices.sluice.dev",
		},
	},
	{
		auditorUser, // the same rights in all projects of the department
		[]string{"list pods", "list pods in seminar", "get pods/log", "get departments.sluice.dev faculty", "get projects.sluice.dev lab", "get projects.sluice.dev seminar"},
		[]string{
			"list projects.sluice.dev", "list departments.sluice.dev", "get departments.sluice.dev institute", "get projects.sluice.dev workshop", "list pods in workshop",
			"create pods", "delete pods", "get secrets", "administer departments/projects.sluice.dev faculty", "update projects.sluice.dev lab", "create projects.sluice.dev",
		},
	},
	{
		ownerUser,
		[]string{"list pods", "get pods/log", "get projects.sluice.dev lab", "create extensions.sluice.dev"},
		[]string{"create pods", "delete pods", "update projects.sluice.dev lab", "update extensions/status.sluice.dev", "get secrets", "list pods in seminar"},
	},
	{
		l2User, // RBAC cannot distinguish creators: see testWorkloadRoles
		[]string{
			"create pods", "create jobs.batch", "create deployments.apps", "create notebooks.kubeflow.org", "create pytorchjobs.kubeflow.org", "create rayjobs.ray.io",
			"patch pods", "delete pods", "update jobs.batch", "delete jobs.batch", "delete deployments.apps", "list configmaps",
			"create pods/exec", "get pods/exec", "create pods/attach", "create pods/portforward", "create services", "create configmaps", "create secrets", "delete persistentvolumeclaims", "create extensions.sluice.dev", "get projects.sluice.dev lab",
		},
		[]string{
			"deletecollection pods", "deletecollection jobs.batch", "patch deployments/scale.apps", "patch services/status", "create ingresses.networking.k8s.io",
			"deletecollection secrets", "get secrets", "list secrets", "create daemonsets.apps", "update extensions/status.sluice.dev",
			"list pods in seminar", "create pods in seminar", "list projects.sluice.dev", "update projects.sluice.dev lab",
		},
	},
	{
		l1User,
		[]string{
			"create pods", "delete pods", "deletecollection pods", "create pods/exec", "get pods/exec", "create pods/portforward", "create jobs.batch", "patch jobs.batch", "patch deployments/scale.apps",
			"create services", "create ingresses.networking.k8s.io", "create configmaps", "create persistentvolumeclaims", "create podtemplates", "create extensions.sluice.dev",
		},
		[]string{"get secrets", "create secrets", "create daemonsets.apps", "update extensions/status.sluice.dev", "create pods in seminar", "update projects.sluice.dev lab", "get departments.sluice.dev faculty"},
	},
	{
		editorUser,
		[]string{"create pods", "deletecollection jobs.batch", "create pods/exec", "get secrets", "create secrets", "delete persistentvolumeclaims", "update extensions/status.sluice.dev"},
		[]string{"update projects.sluice.dev lab", "create pods in seminar", "get secrets in seminar", "administer departments/projects.sluice.dev faculty", "manage projects.sluice.dev lab"},
	},
	{
		engineerUser,
		[]string{
			"create deployments.apps", "delete deployments.apps", "patch deployments/scale.apps", "create inferenceservices.serving.kserve.io", "patch rayservices.ray.io",
			"create services", "create ingresses.networking.k8s.io", "create horizontalpodautoscalers.autoscaling", "get pods/log", "create extensions.sluice.dev",
			"create pods/exec", "get pods/exec",
		},
		[]string{
			"create pods", "delete pods", "create jobs.batch", "delete jobs.batch", "create notebooks.kubeflow.org", "create statefulsets.apps", "get secrets",
			"create configmaps", "update extensions/status.sluice.dev",
		},
	},
	{
		managerUser,
		[]string{
			"list pods", "get projects.sluice.dev lab", "update projects.sluice.dev lab", "patch projects.sluice.dev lab", "manage projects.sluice.dev lab",
			"create extensions.sluice.dev", "update extensions/status.sluice.dev",
		},
		[]string{
			"create pods", "create jobs.batch", "delete jobs.batch", "get secrets", "list pods in seminar", "get departments.sluice.dev faculty",
			"create projects.sluice.dev", "delete projects.sluice.dev lab", "list projects.sluice.dev", "update projects.sluice.dev", "patch projects.sluice.dev seminar",
			"manage projects.sluice.dev", "manage projects.sluice.dev seminar", "administer departments/projects.sluice.dev faculty",
		},
	},
	{
		headUser, // the same rights on all projects of the department
		[]string{
			"list pods", "list pods in seminar", "get departments.sluice.dev faculty", "update projects.sluice.dev lab", "patch projects.sluice.dev seminar",
			"manage projects.sluice.dev lab", "manage projects.sluice.dev seminar",
		},
		[]string{
			"create pods", "get secrets", "list pods in workshop", "update departments.sluice.dev faculty", "administer departments/projects.sluice.dev faculty",
			"create projects.sluice.dev", "delete projects.sluice.dev lab", "list projects.sluice.dev", "update projects.sluice.dev", "manage projects.sluice.dev",
			"get projects.sluice.dev workshop", "patch projects.sluice.dev workshop", "manage projects.sluice.dev workshop",
		},
	},
	{
		deanUser, // admission, not RBAC, restricts the projects to the department
		[]string{
			"list pods", "list pods in seminar", "delete pods", "delete jobs.batch in seminar", "update extensions/status.sluice.dev", "create extensions.sluice.dev",
			"get departments.sluice.dev faculty", "get projects.sluice.dev lab", "get projects.sluice.dev seminar", "administer departments/projects.sluice.dev faculty",
			"create projects.sluice.dev", "update projects.sluice.dev", "delete projects.sluice.dev",
		},
		[]string{
			"create pods", "patch jobs.batch", "create pods/exec", "get secrets", "list projects.sluice.dev", "get projects.sluice.dev workshop", "list pods in workshop",
			"administer departments/projects.sluice.dev", "administer departments/projects.sluice.dev institute", "get departments.sluice.dev institute",
			"update departments.sluice.dev faculty", "create departments.sluice.dev", "create policies.sluice.dev", "update nodepools.sluice.dev", "list usagerecords.sluice.dev",
		},
	},
	{
		systemUser,
		[]string{
			"create departments.sluice.dev", "delete projects.sluice.dev", "list projects.sluice.dev", "create nodepools.sluice.dev", "create policies.sluice.dev", "list nodes",
			"administer departments/projects.sluice.dev", "administer departments/projects.sluice.dev faculty", "list usagerecords.sluice.dev", "list notices.sluice.dev",
			"list pods in workshop", "update extensions/status.sluice.dev in workshop", "list clusterqueues.kueue.x-k8s.io",
		},
		[]string{"create pods", "delete pods", "create pods/exec", "get secrets", "update nodes", "patch namespaces", "update extensions.sluice.dev", "delete workloadclocks.sluice.dev"},
	},
	{
		ordinaryUser, // a member of no project or department
		nil,
		[]string{"list pods", "get projects.sluice.dev lab", "list projects.sluice.dev", "get departments.sluice.dev faculty", "create extensions.sluice.dev", "create projects.sluice.dev"},
	},
}

// forbiddenToAll returns the rights that no role has: writing the objects of Sluice and of
// the schedulers, and everything by which a pod could bypass them.
func forbiddenToAll() (all []string) {
	for _, kind := range []string{
		"resourcequotas", "limitranges", "networkpolicies.networking.k8s.io", "localqueues.kueue.x-k8s.io", "workloads.kueue.x-k8s.io", "podgroups.scheduling.run.ai",
		"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "queues.scheduling.run.ai", "workloadclocks.sluice.dev", "notices.sluice.dev", "usagerecords.sluice.dev", "gpunodes.sluice.dev",
		"projects/status.sluice.dev", "departments/status.sluice.dev", "pods/status", "pods/binding", "pods/eviction", "pods/ephemeralcontainers", "pods/resize", "jobs/status.batch",
		"daemonsets.apps", "nodes", "events", "serviceaccounts", "serviceaccounts/token", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io",
	} {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			all = append(all, verb+" "+kind)
		}
	}
	return append(all, "escalate clusterroles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io", "impersonate users", "impersonate serviceaccounts")
}

func TestRoles(t *testing.T) {
	t.Parallel()
	createUniversity(t)
	t.Run("allowed and forbidden rights", testRoleAccess)
	t.Run("L2 researchers change only their own workloads", testWorkloadRoles)
	t.Run("department administrators manage projects", testProjectRoles)
	t.Run("research managers manage members and quotas", testManagerRoles)
	t.Run("changes of members change the rights", testRoleUpdates)
	t.Run("role bindings are restored", testRolesRestored)
	t.Run("Pod Security is enforced", testRolesPodSecurity)
}

func testRoleAccess(t *testing.T) {
	for _, row := range accessTable {
		t.Run(row.user, func(t *testing.T) {
			for _, right := range row.may {
				waitForAccess(t, row.user, right, true)
			}
			for _, right := range append(forbiddenToAll(), row.mayNot...) {
				if allowed, err := canI(t.Context(), row.user, right); allowed || err != nil {
					t.Errorf("%s may %s: %v, %v", row.user, right, allowed, err)
				}
			}
		})
	}
}

// testWorkloadRoles covers the workload kinds of Kubernetes itself.
func testWorkloadRoles(t *testing.T) {
	clients := map[string]client.Client{}
	for _, user := range []string{l1User, l2User, secondL2User, engineerUser, deanUser} {
		clients[user] = clientFor(t, userConfig(user))
	}
	workloadsBy := func(user, name string) []client.Object {
		pod := newPod(lab, name)
		job := suspended(newGPUJob(lab, name))
		deployment := newServiceDeployment(lab, name, 0)
		for _, object := range []client.Object{pod, job, deployment} {
			if err := clients[user].Create(t.Context(), object); err != nil {
				t.Fatalf("%s: %v", user, err)
			}
			t.Cleanup(func() { deleteAndWait(t, object) })
		}
		return []client.Object{pod, job, deployment}
	}
	note := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"note":"mine"}}}`))
	patchAsUser := func(user string, object client.Object) error {
		return clients[user].Patch(t.Context(), object.DeepCopyObject().(client.Object), note, client.DryRunAll)
	}
	deleteAs := func(user string, object client.Object) error {
		return clients[user].Delete(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
	for _, object := range workloadsBy(l2User, "by-l2") {
		name := fmt.Sprintf("%T", object)
		for verb, attempt := range map[string]func(string, client.Object) error{"change": patchAsUser, "delete": deleteAs} {
			for _, user := range []string{l2User, l1User} {
				if err := attempt(user, object); err != nil {
					t.Errorf("%s cannot %s a %s of %s: %v", user, verb, name, l2User, err)
				}
			}
			err := checkRejected(attempt(secondL2User, object), "was created by "+l2User)
			if err != nil || !apierrors.IsForbidden(attempt(secondL2User, object)) {
				t.Errorf("%s a %s as another L2 researcher: %v", verb, name, err)
			}
		}
		// RBAC alone lets department administrators delete workloads.
		if err := deleteAs(deanUser, object); err != nil {
			t.Errorf("the dean cannot delete a %s: %v", name, err)
		}
	}
	for _, object := range workloadsBy(l1User, "by-l1") {
		if err := checkRejected(patchAsUser(l2User, object), "was created by "+l1User); err != nil {
			t.Errorf("change a %T of an L1 researcher as an L2 researcher: %v", object, err)
		}
	}
	old := newPod(lab, "by-the-cluster")
	create(t, old)
	if err := checkRejected(deleteAs(l2User, old), "only own workloads"); err != nil {
		t.Error(err)
	}
	// A user can delete a workload of their own, and Kubernetes' controllers delete its
	// pods.
	deployment := newServiceDeployment(lab, "going", 1)
	if err := clients[l2User].Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	pods := func() int {
		list, err := sharedCluster.clientset.CoreV1().Pods(lab).List(t.Context(), metav1.ListOptions{LabelSelector: "app=going"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, func() error {
		if n := pods(); n != 1 {
			return unexpectedState("the Deployment has a pod", n)
		}
		return nil
	})
	if err := clients[l2User].Patch(t.Context(), deployment, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))); err != nil {
		t.Errorf("scale a Deployment of one's own: %v", err)
	}
	if err := clients[l2User].Delete(t.Context(), deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := pods(); n > 0 {
			return unexpectedState("its pods are deleted", n)
		}
		return checkDeleted(t.Context(), deployment)
	})
}

// newServiceDeployment returns a Deployment with that number of replicas.
func newServiceDeployment(namespace, name string, replicas int32) *appsv1.Deployment {
	template := labeledTemplate(name)
	return &appsv1.Deployment{
		ObjectMeta: workloadMeta(namespace, name),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}
}

func testProjectRoles(t *testing.T) {
	dean := clientFor(t, userConfig(deanUser))
	project := func(name, department string) *v1alpha1.Project {
		return newProject(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = department, nil })
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := dean.Create(t.Context(), project("new", faculty), client.DryRunAll); err != nil {
		t.Errorf("create a project of the own department: %v", err)
	}
	if err := dean.Patch(t.Context(), project(lab, faculty), label, client.DryRunAll); err != nil {
		t.Errorf("label a project of the own department: %v", err)
	}
}

// testManagerRoles covers the fields that research managers may write.
func testManagerRoles(t *testing.T) {
	waitForAccess(t, managerUser, "manage projects.sluice.dev "+lab, true)
	waitForAccess(t, headUser, "manage projects.sluice.dev "+seminar, true)
	patchProject := func(user, name, change string) error {
		kind := "application/merge-patch+json"
		if strings.HasPrefix(change, "[") {
			kind = "application/json-patch+json"
		}
		return clientFor(t, userConfig(user)).Patch(t.Context(), newProject(name), client.RawPatch(types.PatchType(kind), []byte(change)), client.DryRunAll)
	}
	addMember := func(role v1alpha1.Role) string {
		return fmt.Sprintf(`[{"op": "add", "path": "/spec/members/-", "value": {"kind": "User", "namespace": "", "name": "a-guest", "role": %q}}]`, role)
	}
	const first = `{"spec": {"members": [{"kind": "User", "namespace": "", "name": "a-guest", "role": "l2-researcher"}]}}`
	for change, err := range map[string]error{
		"add a viewer":                         patchProject(managerUser, lab, addMember(v1alpha1.RoleViewer)),
		"add a researcher":                     patchProject(managerUser, lab, addMember(v1alpha1.RoleL1Researcher)),
		"add a researcher as the first member": patchProject(headUser, seminar, first),
		"set a CPU quota":                      patchProject(managerUser, lab, `{"spec": {"resources": {"cpu": "4"}}}`),
		"set a GPU quota":                      patchProject(headUser, lab, `{"spec": {"nodePools": [{"name": "dgx", "gpu": {"guaranteed": "500m", "limit": "2"}}]}}`),
		"set a time limit":                     patchProject(managerUser, lab, `{"spec": {"workloads": {"train": {"maxRuntime": "6h"}}}}`),
	} {
		if err != nil {
			t.Errorf("%s: %v", change, err)
		}
	}
	expectRejection(t, patchProject(managerUser, lab, addMember(v1alpha1.RoleEditor)), apierrors.IsInvalid, "more than you may grant", "l1-researcher, l2-researcher, ml-engineer, viewer")
	expectRejection(t, patchProject(managerUser, lab, `{"spec": {"members": null}}`), apierrors.IsInvalid, "removes the role editor", "removes the role research-manager")
	expectRejection(t, patchProject(headUser, seminar, `{"spec": {"hold": {"reason": "mine"}}}`), apierrors.IsForbidden, "spec.hold", "department-administrator")
	expectRejection(t, patchProject(headUser, seminar, `{"metadata": {"labels": {"a": "b"}}}`), apierrors.IsForbidden, "metadata.labels")
	expectRejection(t, patchProject(headUser, seminar, `{"metadata": {"finalizers": ["example.org/mine"]}}`), apierrors.IsForbidden, "metadata.finalizers")
	expectRejection(t, patchProject(managerUser, seminar, first), apierrors.IsForbidden, "cannot patch resource")
}

func testRoleUpdates(t *testing.T) {
	sharedCluster.createGovernedProject(t, faculty, "guests", newPoolQuota("dgx", "0", "1"))
	waitForListPods := func(user string, want bool) { waitForAccess(t, user, "list pods in guests", want) }
	waitForListPods(deanUser, true)
	waitForListPods(ordinaryUser, false)
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, v1alpha1.RoleViewer)}
	})
	waitForListPods(ordinaryUser, true)
	waitForAccess(t, ordinaryUser, "get projects.sluice.dev guests", true)

	for _, role := range []v1alpha1.Role{v1alpha1.RoleResearchManager, v1alpha1.RoleViewer} {
		updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, role)} })
		waitForAccess(t, ordinaryUser, "manage projects.sluice.dev guests", role == v1alpha1.RoleResearchManager)
	}
	waitForAccess(t, headUser, "manage projects.sluice.dev guests", true)

	// After a move to another department, the members of the old one lose their rights and
	// those of the new one gain them.
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Department = institute })
	waitForListPods("the-director", true)
	waitForListPods(deanUser, false)
	waitForAccess(t, deanUser, "get projects.sluice.dev guests", false)
	waitForAccess(t, headUser, "manage projects.sluice.dev guests", false)
	waitForListPods(ordinaryUser, true)

	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = nil })
	waitForListPods(ordinaryUser, false)
	waitForAccess(t, ordinaryUser, "get projects.sluice.dev guests", false)

	// The deletion of a project removes all of its rights, although its namespace remains
	// because of its volumes.
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, v1alpha1.RoleViewer)}
	})
	waitForListPods(ordinaryUser, true)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "guests", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	create(t, claim)
	deleteAndWait(t, newProject("guests"))
	t.Cleanup(func() { deleteAndWait(t, newNamespace("guests")) })
	waitForListPods(ordinaryUser, false)
	ns := newNamespace("guests")
	if err := refresh(t, ns); err != nil || len(ns.Labels[v1alpha1.LabelPodSecurityEnforce]) > 0 {
		t.Errorf("the remaining namespace is %v, %v", ns, err)
	}
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
		if err := sharedCluster.adminClient.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelProject: "guests"}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprintf("%+v", list), "Items:[]") {
			t.Errorf("not deleted: %+v", list)
		}
	}
}

func testRolesRestored(t *testing.T) {
	binding := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "sluice:viewer"}}
	}
	b := binding()
	eventually(t, func() error {
		if err := refresh(t, b); err != nil {
			return err
		}
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ordinaryUser})
		return sharedCluster.adminClient.Update(t.Context(), b)
	})
	waitForAccess(t, ordinaryUser, "list pods", false)
	if err := sharedCluster.adminClient.Delete(t.Context(), binding()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return refresh(t, binding()) })
	waitForAccess(t, viewerUser, "list pods", true)

	// Lifecycle does not change a user's binding of the same name, and reports it.
	foreign := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice:viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	create(t, foreign)
	updateProjectWithRetry(t, seminar, func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, v1alpha1.RoleViewer)}
	})
	eventually(t, func() error {
		p := newProject(seminar)
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionMembersBound, metav1.ConditionFalse, v1alpha1.ReasonRoleBindingFailed)
	})
	if err := refresh(t, foreign); err != nil || foreign.RoleRef.Name != "view" || len(foreign.Subjects) > 0 {
		t.Errorf("the user's binding is %v, %v", foreign, err)
	}
}

// testRolesPodSecurity covers Pod Security, the network policy and the quota of CPU and
// memory.
func testRolesPodSecurity(t *testing.T) {
	waitForLevel := func(want string) {
		t.Helper()
		eventually(t, func() error {
			ns := newNamespace(seminar)
			if err := refresh(t, ns); err != nil {
				return err
			}
			if got := ns.Labels[v1alpha1.LabelPodSecurityEnforce]; got != want {
				return unexpectedState("the enforced level is "+want, got)
			}
			return nil
		})
	}
	waitForLevel("baseline")
	privileged := newPod(seminar, "privileged", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	if err := checkRejected(sharedCluster.adminClient.Create(t.Context(), privileged, client.DryRunAll), "PodSecurity"); err != nil {
		t.Error(err)
	}
	loosen := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))
	if err := checkRejected(sharedCluster.adminClient.Patch(t.Context(), newNamespace(seminar), loosen), "spec.podSecurity"); err != nil {
		t.Error(err)
	}
	updateProjectWithRetry(t, seminar, func(p *v1alpha1.Project) {
		p.Spec.PodSecurity = v1alpha1.PodSecurityRestricted
		p.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse("2")), Memory: ptr.To(resource.MustParse("4Gi"))}
	})
	waitForLevel("restricted")
	updateProjectWithRetry(t, seminar, func(p *v1alpha1.Project) { p.Spec.PodSecurity = "" })
	waitForLevel("baseline")

	eventually(t, func() error {
		return refresh(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice-ingress"}})
	})
	eventually(t, func() error {
		q := projectQuota(seminar)
		if err := refresh(t, q); err != nil {
			return err
		}
		if got := q.Status.Hard["requests.cpu"]; got.String() != "2" {
			return unexpectedState("the quota has a limit of 2 CPUs", q.Status.Hard)
		}
		return nil
	})
	// A pod without requests for CPU and memory gets defaults and is admitted.
	eventually(t, func() error {
		return sharedCluster.adminClient.Create(t.Context(), newPod(seminar, "plain"), client.DryRunAll)
	})
	greedy := newPod(seminar, "greedy", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	})
	if err := checkRejected(sharedCluster.adminClient.Create(t.Context(), greedy, client.DryRunAll), "exceeded quota: sluice, requested: requests.cpu=3"); err != nil {
		t.Error(err)
	}
}
