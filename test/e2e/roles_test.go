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

// The faculty has two projects; its people are named by what they are. The dean, the
// auditor (its viewer) and the head (its research manager) are the department's
// members, the others are the lab's. Beside it there is an institute with people of its own.
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

// newMember is a member of that name with that role.
func newMember(name string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role}
}

// createUniversity makes all of that, and waits until people have their rights.
func createUniversity(t *testing.T) {
	t.Helper()
	for department, people := range map[string][]v1alpha1.Member{
		faculty:   {newMember(deanUser, v1alpha1.RoleDepartmentAdministrator), newMember(auditorUser, v1alpha1.RoleDepartmentViewer), newMember(headUser, v1alpha1.RoleResearchManager)},
		institute: {newMember("the-director", v1alpha1.RoleDepartmentAdministrator)},
	} {
		create(t, &v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: department},
			Spec:       v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4")}, Members: people},
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
	for _, who := range []string{deanUser, auditorUser, headUser, l1User, l2User, secondL2User, editorUser, engineerUser, viewerUser, managerUser, ownerUser, systemUser} {
		waitForAccess(t, who, "list pods", true)
	}
}

// updateProjectWithRetry changes a project, whoever else writes it at the time.
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

// clusterScopedKinds are the kinds here that are in no namespace.
var clusterScopedKinds = []string{
	"projects.sluice.dev", "projects/status.sluice.dev", "departments.sluice.dev", "departments/projects.sluice.dev", "departments/status.sluice.dev",
	"nodepools.sluice.dev", "policies.sluice.dev", "gpunodes.sluice.dev", "usagerecords.sluice.dev", "notices.sluice.dev", "nodes", "clusterroles.rbac.authorization.k8s.io",
	"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "queues.scheduling.run.ai", "validatingadmissionpolicies.admissionregistration.k8s.io",
}

// canI asks the API server, as that person: "create jobs.batch" is in the lab, "get
// pods in workshop" elsewhere, "get projects.sluice.dev lab" about one name.
func canI(ctx context.Context, who, what string) (bool, error) {
	words := strings.Fields(what)
	kind, group, _ := strings.Cut(words[1], ".")
	resource, subresource, _ := strings.Cut(kind, "/")
	asked := &authorizationv1.ResourceAttributes{Namespace: lab, Verb: words[0], Group: group, Resource: resource, Subresource: subresource}
	switch rest := words[2:]; {
	case len(rest) == 2 && rest[0] == "in":
		asked.Namespace = rest[1]
	case len(rest) == 1:
		asked.Name = rest[0]
	case len(rest) > 0:
		return false, fmt.Errorf("%q is no question", what)
	}
	if slices.Contains(clusterScopedKinds, words[1]) {
		asked.Namespace = ""
	}
	review, err := kubernetes.NewForConfigOrDie(userConfig(who)).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func userConfig(who string) *rest.Config {
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who, Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func waitForAccess(t *testing.T, who, what string, want bool) {
	t.Helper()
	eventually(t, func() error {
		got, err := canI(t.Context(), who, what)
		if err == nil && got != want {
			err = unexpectedState(fmt.Sprintf("%s may %s: %v", who, what, want), got)
		}
		return err
	})
}

// What each role may and may not, as docs/platform/roles.md has it.
var accessTable = []struct {
	who         string
	may, mayNot []string
}{
	{
		viewerUser,
		[]string{
			"get pods", "list jobs.batch", "watch deployments.apps", "get pods/log", "list events", "list configmaps", "list persistentvolumeclaims",
			"list resourcequotas", "list networkpolicies.networking.k8s.io", "list localqueues.kueue.x-k8s.io", "list workloads.kueue.x-k8s.io",
			"list workloadclocks.sluice.dev", "list extensions.sluice.dev", "get namespaces lab", "get projects.sluice.dev lab",
		},
		[]string{
			"create pods", "delete pods", "patch jobs.batch", "create pods/exec", "create pods/portforward", "list secrets", "get secrets", "create extensions.sluice.dev",
			"list projects.sluice.dev", "get projects.sluice.dev seminar", "get departments.sluice.dev faculty", "list pods in seminar", "list usagerecords.sluice.dev", "list notices.sluice.dev",
		},
	},
	{
		auditorUser, // sees the same, in all of the department
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
		l2User, // whose a workload is, RBAC does not say: see TestL2ResearchersKeepToTheirOwn
		[]string{
			"create pods", "create jobs.batch", "create deployments.apps", "create notebooks.kubeflow.org", "create pytorchjobs.kubeflow.org", "create rayjobs.ray.io",
			"patch pods", "delete pods", "update jobs.batch", "delete jobs.batch", "delete deployments.apps", "list configmaps", "create extensions.sluice.dev", "get projects.sluice.dev lab",
		},
		[]string{
			"deletecollection pods", "deletecollection jobs.batch", "create pods/exec", "get pods/exec", "create pods/attach", "create pods/portforward", "patch deployments/scale.apps",
			"create services", "create configmaps", "delete persistentvolumeclaims", "get secrets", "create daemonsets.apps", "update extensions/status.sluice.dev",
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
		},
		[]string{
			"create pods", "delete pods", "create jobs.batch", "delete jobs.batch", "create notebooks.kubeflow.org", "create statefulsets.apps", "create pods/exec", "get secrets",
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
		headUser, // the same, of each project of the department
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
		deanUser, // whose the projects are, RBAC does not say: admission does
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
		ordinaryUser, // who is no member of anything
		nil,
		[]string{"list pods", "get projects.sluice.dev lab", "list projects.sluice.dev", "get departments.sluice.dev faculty", "create extensions.sluice.dev", "create projects.sluice.dev"},
	},
}

// What Sluice and the engines own, and by what a pod would slip out, is written by
// nobody, whatever the role.
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
	createUniversity(t)
	t.Run("may and may not", testRoleAccess)
	t.Run("L2 researchers keep to their own", testWorkloadRoles)
	t.Run("what Sluice owns is refused", testRolesRejected)
	t.Run("projects by the administrators of their department", testProjectRoles)
	t.Run("people and quotas by research managers", testManagerRoles)
	t.Run("rights follow the members", testRoleUpdates)
	t.Run("what is bound is kept", testRolesRestored)
	t.Run("the namespace is secured", testRolesPodSecurity)
}

func testRoleAccess(t *testing.T) {
	for _, row := range accessTable {
		t.Run(row.who, func(t *testing.T) {
			t.Parallel()
			for _, what := range row.may {
				waitForAccess(t, row.who, what, true)
			}
			for _, what := range append(forbiddenToAll(), row.mayNot...) {
				if allowed, err := canI(t.Context(), row.who, what); allowed || err != nil {
					t.Errorf("%s may %s: %v, %v", row.who, what, allowed, err)
				}
			}
		})
	}
}

// testWorkloadRoles: each of the kinds that Kubernetes itself has, as people really use them.
func testWorkloadRoles(t *testing.T) {
	people := map[string]client.Client{}
	for _, who := range []string{l1User, l2User, secondL2User, engineerUser, deanUser} {
		people[who] = clientFor(t, userConfig(who))
	}
	workloadsBy := func(who, name string) []client.Object {
		pod := newPod(lab, name)
		job := suspended(newGPUJob(lab, name))
		deployment := newServiceDeployment(lab, name, 0)
		for _, object := range []client.Object{pod, job, deployment} {
			if err := people[who].Create(t.Context(), object); err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			t.Cleanup(func() { deleteAndWait(t, object) })
		}
		return []client.Object{pod, job, deployment}
	}
	note := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"note":"mine"}}}`))
	change := func(who string, object client.Object) error {
		return people[who].Patch(t.Context(), object.DeepCopyObject().(client.Object), note, client.DryRunAll)
	}
	end := func(who string, object client.Object) error {
		return people[who].Delete(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
	for _, object := range workloadsBy(l2User, "by-l2") {
		name := fmt.Sprintf("%T", object)
		for what, try := range map[string]func(string, client.Object) error{"change": change, "delete": end} {
			for _, who := range []string{l2User, l1User} {
				if err := try(who, object); err != nil {
					t.Errorf("%s cannot %s a %s of %s: %v", who, what, name, l2User, err)
				}
			}
			err := expectRefused(try(secondL2User, object), "was created by "+l2User)
			if err != nil || !apierrors.IsForbidden(try(secondL2User, object)) {
				t.Errorf("another L2 researcher: %s a %s: %v", what, name, err)
			}
		}
		// Those who stop what is in the way, and those who serve, change what is theirs
		// to change by RBAC alone.
		if err := end(deanUser, object); err != nil {
			t.Errorf("the dean cannot delete a %s: %v", name, err)
		}
	}
	for _, object := range workloadsBy(l1User, "by-l1") {
		if err := expectRefused(change(l2User, object), "was created by "+l1User); err != nil {
			t.Errorf("an L2 researcher changes a %T of an L1 researcher: %v", object, err)
		}
	}
	old := newPod(lab, "by-the-cluster")
	create(t, old)
	if err := expectRefused(end(l2User, old), "only own workloads"); err != nil {
		t.Error(err)
	}
	// Nobody takes over what is another's, and what is one's own really goes: with
	// its pods, by Kubernetes' controllers.
	mine := newServiceDeployment(lab, "going", 1)
	if err := people[l2User].Create(t.Context(), mine); err != nil {
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
			return unexpectedState("it has a pod", n)
		}
		return nil
	})
	if err := people[l2User].Patch(t.Context(), mine, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))); err != nil {
		t.Errorf("the own number of replicas: %v", err)
	}
	if err := people[l2User].Delete(t.Context(), mine, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := pods(); n > 0 {
			return unexpectedState("its pods are gone", n)
		}
		return checkDeleted(t.Context(), mine)
	})
}

// newServiceDeployment is a Deployment of so many pods.
func newServiceDeployment(namespace, name string, replicas int32) *appsv1.Deployment {
	template := labeledTemplate(name)
	return &appsv1.Deployment{
		ObjectMeta: workloadMeta(namespace, name),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}
}

// testRolesRejected: what the table says is tried once for real, by whoever may most.
func testRolesRejected(t *testing.T) {
	editor := clientFor(t, userConfig(editorUser))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "open"}}
	role := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "more"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: editorUser}},
	}
	for what, err := range map[string]error{
		"a quota taken away":      editor.Delete(t.Context(), getResourceQuota(lab, "sluice-dgx"), client.DryRunAll),
		"a quota of one's own":    editor.Create(t.Context(), getResourceQuota(lab, "own"), client.DryRunAll),
		"a network policy":        editor.Create(t.Context(), policy, client.DryRunAll),
		"a right":                 editor.Create(t.Context(), role, client.DryRunAll),
		"the project":             editor.Patch(t.Context(), newProject(lab), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"members":[]}}`)), client.DryRunAll),
		"the namespace":           editor.Patch(t.Context(), newNamespace(lab), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll),
		"a pod's status":          editor.Status().Patch(t.Context(), newPod(lab, "any"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`))),
		"a service account":       editor.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "robot"}}, client.DryRunAll),
		"the projects of all":     editor.List(t.Context(), &v1alpha1.ProjectList{}),
		"the records of use":      editor.List(t.Context(), &v1alpha1.UsageRecordList{}),
		"who was written to when": editor.List(t.Context(), &v1alpha1.NoticeList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v; want it forbidden", what, err)
		}
	}
}

func testProjectRoles(t *testing.T) {
	dean := clientFor(t, userConfig(deanUser))
	of := func(name, department string) *v1alpha1.Project {
		return newProject(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = department, nil })
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := dean.Create(t.Context(), of("new", faculty), client.DryRunAll); err != nil {
		t.Errorf("a project of the own department: %v", err)
	}
	if err := dean.Patch(t.Context(), of(lab, faculty), label, client.DryRunAll); err != nil {
		t.Errorf("the label of an own project: %v", err)
	}
	for what, err := range map[string]error{
		"a project elsewhere":           dean.Create(t.Context(), of("new", institute), client.DryRunAll),
		"the label of one elsewhere":    dean.Patch(t.Context(), of(elsewhere, institute), label, client.DryRunAll),
		"the deletion of one elsewhere": dean.Delete(t.Context(), of(elsewhere, institute), client.DryRunAll),
	} {
		if err == nil {
			t.Errorf("%s: nobody refuses it", what)
		}
	}
}

// testManagerRoles: what those write who look after people and quotas.
func testManagerRoles(t *testing.T) {
	waitForAccess(t, managerUser, "manage projects.sluice.dev "+lab, true)
	waitForAccess(t, headUser, "manage projects.sluice.dev "+seminar, true)
	try := func(who, name, change string) error {
		kind := "application/merge-patch+json"
		if strings.HasPrefix(change, "[") {
			kind = "application/json-patch+json"
		}
		return clientFor(t, userConfig(who)).Patch(t.Context(), newProject(name), client.RawPatch(types.PatchType(kind), []byte(change)), client.DryRunAll)
	}
	joins := func(role v1alpha1.Role) string {
		return fmt.Sprintf(`[{"op": "add", "path": "/spec/members/-", "value": {"kind": "User", "namespace": "", "name": "a-guest", "role": %q}}]`, role)
	}
	const first = `{"spec": {"members": [{"kind": "User", "namespace": "", "name": "a-guest", "role": "l2-researcher"}]}}`
	for what, err := range map[string]error{
		"a viewer":            try(managerUser, lab, joins(v1alpha1.RoleViewer)),
		"a researcher":        try(managerUser, lab, joins(v1alpha1.RoleL1Researcher)),
		"a researcher, first": try(headUser, seminar, first),
		"a quota of CPU":      try(managerUser, lab, `{"spec": {"resources": {"cpu": "4"}}}`),
		"a quota of GPUs":     try(headUser, lab, `{"spec": {"nodePools": [{"name": "dgx", "gpu": {"guaranteed": "500m", "limit": "2"}}]}}`),
		"a limit":             try(managerUser, lab, `{"spec": {"workloads": {"train": {"maxRuntime": "6h"}}}}`),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	expectRejection(t, try(managerUser, lab, joins(v1alpha1.RoleEditor)), apierrors.IsInvalid, "more than you may grant", "l1-researcher, l2-researcher, ml-engineer, viewer")
	expectRejection(t, try(managerUser, lab, `{"spec": {"members": null}}`), apierrors.IsInvalid, "removes the role editor", "removes the role research-manager")
	expectRejection(t, try(headUser, seminar, `{"spec": {"hold": {"reason": "mine"}}}`), apierrors.IsForbidden, "spec.hold", "department-administrator")
	expectRejection(t, try(headUser, seminar, `{"metadata": {"labels": {"a": "b"}}}`), apierrors.IsForbidden, "metadata.labels")
	expectRejection(t, try(headUser, seminar, `{"metadata": {"finalizers": ["example.org/mine"]}}`), apierrors.IsForbidden, "metadata.finalizers")
	expectRejection(t, try(managerUser, seminar, first), apierrors.IsForbidden, "cannot patch resource")
}

func testRoleUpdates(t *testing.T) {
	sharedCluster.createGovernedProject(t, faculty, "guests", newPoolQuota("dgx", "0", "1"))
	may := func(who string, want bool) { waitForAccess(t, who, "list pods in guests", want) }
	may(deanUser, true)
	may(ordinaryUser, false)
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, v1alpha1.RoleViewer)}
	})
	may(ordinaryUser, true)
	waitForAccess(t, ordinaryUser, "get projects.sluice.dev guests", true)

	for _, role := range []v1alpha1.Role{v1alpha1.RoleResearchManager, v1alpha1.RoleViewer} {
		updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, role)} })
		waitForAccess(t, ordinaryUser, "manage projects.sluice.dev guests", role == v1alpha1.RoleResearchManager)
	}
	waitForAccess(t, headUser, "manage projects.sluice.dev guests", true)

	// A move: the one department's people lose their rights, the other's gain them.
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Department = institute })
	may("the-director", true)
	may(deanUser, false)
	waitForAccess(t, deanUser, "get projects.sluice.dev guests", false)
	waitForAccess(t, headUser, "manage projects.sluice.dev guests", false)
	may(ordinaryUser, true)

	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = nil })
	may(ordinaryUser, false)
	waitForAccess(t, ordinaryUser, "get projects.sluice.dev guests", false)

	// With a project all of its rights go, while its namespace stays for its volumes.
	updateProjectWithRetry(t, "guests", func(p *v1alpha1.Project) {
		p.Spec.Members = []v1alpha1.Member{newMember(ordinaryUser, v1alpha1.RoleViewer)}
	})
	may(ordinaryUser, true)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "guests", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	create(t, claim)
	deleteAndWait(t, newProject("guests"))
	t.Cleanup(func() { deleteAndWait(t, newNamespace("guests")) })
	may(ordinaryUser, false)
	ns := newNamespace("guests")
	if err := refresh(t, ns); err != nil || len(ns.Labels[v1alpha1.LabelPodSecurityEnforce]) > 0 {
		t.Errorf("what stays is %v, %v", ns, err)
	}
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
		if err := sharedCluster.adminClient.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelProject: "guests"}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprintf("%+v", list), "Items:[]") {
			t.Errorf("left behind: %+v", list)
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

	// One of that name that somebody made before is left alone, and shown.
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice:viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	create(t, theirs)
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
	if err := refresh(t, theirs); err != nil || theirs.RoleRef.Name != "view" || len(theirs.Subjects) > 0 {
		t.Errorf("somebody else's binding is %v, %v", theirs, err)
	}
}

// testRolesPodSecurity: Pod Security, the network and the quota of CPU and memory.
func testRolesPodSecurity(t *testing.T) {
	level := func(want string) {
		t.Helper()
		eventually(t, func() error {
			ns := newNamespace(seminar)
			if err := refresh(t, ns); err != nil {
				return err
			}
			if got := ns.Labels[v1alpha1.LabelPodSecurityEnforce]; got != want {
				return unexpectedState("the namespace is held to "+want, got)
			}
			return nil
		})
	}
	level("baseline")
	privileged := newPod(seminar, "privileged", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	if err := expectRefused(sharedCluster.adminClient.Create(t.Context(), privileged, client.DryRunAll), "PodSecurity"); err != nil {
		t.Error(err)
	}
	loosen := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))
	if err := expectRefused(sharedCluster.adminClient.Patch(t.Context(), newNamespace(seminar), loosen), "spec.podSecurity"); err != nil {
		t.Error(err)
	}
	updateProjectWithRetry(t, seminar, func(p *v1alpha1.Project) {
		p.Spec.PodSecurity = v1alpha1.PodSecurityRestricted
		p.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse("2")), Memory: ptr.To(resource.MustParse("4Gi"))}
	})
	level("restricted")
	updateProjectWithRetry(t, seminar, func(p *v1alpha1.Project) { p.Spec.PodSecurity = "" })
	level("baseline")

	eventually(t, func() error {
		return refresh(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice-ingress"}})
	})
	eventually(t, func() error {
		q := getResourceQuota(seminar, "sluice-resources")
		if err := refresh(t, q); err != nil {
			return err
		}
		if got := q.Status.Hard["requests.cpu"]; got.String() != "2" {
			return unexpectedState("2 CPUs are counted", q.Status.Hard)
		}
		return nil
	})
	// A pod that says nothing of CPU and memory comes in, and counts.
	eventually(t, func() error {
		return sharedCluster.adminClient.Create(t.Context(), newPod(seminar, "plain"), client.DryRunAll)
	})
	greedy := newPod(seminar, "greedy", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	})
	if err := expectRefused(sharedCluster.adminClient.Create(t.Context(), greedy, client.DryRunAll), "sluice-resources"); err != nil {
		t.Error(err)
	}
}
