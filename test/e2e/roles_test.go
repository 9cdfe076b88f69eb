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
	faculty, institute         = "faculty", "institute"
	lab, seminar, elsewhere    = "lab", "seminar", "workshop"
	theDean, theAuditor        = "the-dean", "the-auditor"
	theHead                    = "the-head"
	theL1, theL2, anotherL2    = "the-l1", "the-l2", "another-l2"
	theEditor, theEngineer     = "the-editor", "the-engineer"
	theViewer, theManager      = "the-viewer", "the-manager"
	theOwner, theSystem, aUser = "the-owner", "the-system-administrator", "a-user"
)

// memberOf is a member of that name with that role.
func memberOf(name string, role v1alpha1.Role) v1alpha1.Member {
	return v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name, Role: role}
}

// university makes all of that, and waits until people have their rights.
func university(t *testing.T) {
	t.Helper()
	for department, people := range map[string][]v1alpha1.Member{
		faculty:   {memberOf(theDean, v1alpha1.RoleDepartmentAdministrator), memberOf(theAuditor, v1alpha1.RoleDepartmentViewer), memberOf(theHead, v1alpha1.RoleResearchManager)},
		institute: {memberOf("the-director", v1alpha1.RoleDepartmentAdministrator)},
	} {
		create(t, &v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: department},
			Spec:       v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{quota("dgx", "2", "4")}, Members: people},
		})
	}
	for name, department := range map[string]string{lab: faculty, seminar: faculty, elsewhere: institute} {
		shared.governed(t, department, name, quota("dgx", "0", "1"))
	}
	changed(t, lab, func(p *v1alpha1.Project) {
		p.Spec.Owners[0].User = theOwner
		p.Spec.Members = []v1alpha1.Member{
			memberOf(theEditor, v1alpha1.RoleEditor), memberOf(theManager, v1alpha1.RoleResearchManager),
			memberOf(theL1, v1alpha1.RoleL1Researcher), memberOf(theL2, v1alpha1.RoleL2Researcher), memberOf(anotherL2, v1alpha1.RoleL2Researcher),
			memberOf(theEngineer, v1alpha1.RoleMLEngineer), memberOf(theViewer, v1alpha1.RoleViewer),
		}
	})
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: theSystem},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:system-administrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: theSystem}},
	})
	for _, who := range []string{theDean, theAuditor, theHead, theL1, theL2, anotherL2, theEditor, theEngineer, theViewer, theManager, theOwner, theSystem} {
		awaitMay(t, who, "list pods", true)
	}
}

// changed changes a project, whoever else writes it at the time.
func changed(t *testing.T, name string, change func(*v1alpha1.Project)) {
	t.Helper()
	eventually(t, func() error {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := get(t, p); err != nil {
			return err
		}
		change(p)
		return shared.admin.Update(t.Context(), p)
	})
}

// clusterWide are the kinds here that are in no namespace.
var clusterWide = []string{
	"projects.sluice.dev", "projects/status.sluice.dev", "departments.sluice.dev", "departments/projects.sluice.dev", "departments/status.sluice.dev",
	"nodepools.sluice.dev", "policies.sluice.dev", "gpunodes.sluice.dev", "usagerecords.sluice.dev", "notices.sluice.dev", "nodes", "clusterroles.rbac.authorization.k8s.io",
	"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "queues.scheduling.run.ai", "validatingadmissionpolicies.admissionregistration.k8s.io",
}

// may asks the API server, as that person: "create jobs.batch" is in the lab, "get
// pods in workshop" elsewhere, "get projects.sluice.dev lab" about one name.
func may(ctx context.Context, who, what string) (bool, error) {
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
	if slices.Contains(clusterWide, words[1]) {
		asked.Namespace = ""
	}
	review, err := kubernetes.NewForConfigOrDie(as(who)).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func as(who string) *rest.Config {
	config := rest.CopyConfig(shared.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who, Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func awaitMay(t *testing.T, who, what string, want bool) {
	t.Helper()
	eventually(t, func() error {
		got, err := may(t.Context(), who, what)
		if err == nil && got != want {
			err = errNotYet(fmt.Sprintf("%s may %s: %v", who, what, want), got)
		}
		return err
	})
}

// What each role may and may not, as docs/roles.md has it.
var whoMay = []struct {
	who         string
	may, mayNot []string
}{
	{
		theViewer,
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
		theAuditor, // sees the same, in all of the department
		[]string{"list pods", "list pods in seminar", "get pods/log", "get departments.sluice.dev faculty", "get projects.sluice.dev lab", "get projects.sluice.dev seminar"},
		[]string{
			"list projects.sluice.dev", "list departments.sluice.dev", "get departments.sluice.dev institute", "get projects.sluice.dev workshop", "list pods in workshop",
			"create pods", "delete pods", "get secrets", "administer departments/projects.sluice.dev faculty", "update projects.sluice.dev lab", "create projects.sluice.dev",
		},
	},
	{
		theOwner,
		[]string{"list pods", "get pods/log", "get projects.sluice.dev lab", "create extensions.sluice.dev"},
		[]string{"create pods", "delete pods", "update projects.sluice.dev lab", "update extensions/status.sluice.dev", "get secrets", "list pods in seminar"},
	},
	{
		theL2, // whose a workload is, RBAC does not say: see TestL2ResearchersKeepToTheirOwn
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
		theL1,
		[]string{
			"create pods", "delete pods", "deletecollection pods", "create pods/exec", "get pods/exec", "create pods/portforward", "create jobs.batch", "patch jobs.batch", "patch deployments/scale.apps",
			"create services", "create ingresses.networking.k8s.io", "create configmaps", "create persistentvolumeclaims", "create podtemplates", "create extensions.sluice.dev",
		},
		[]string{"get secrets", "create secrets", "create daemonsets.apps", "update extensions/status.sluice.dev", "create pods in seminar", "update projects.sluice.dev lab", "get departments.sluice.dev faculty"},
	},
	{
		theEditor,
		[]string{"create pods", "deletecollection jobs.batch", "create pods/exec", "get secrets", "create secrets", "delete persistentvolumeclaims", "update extensions/status.sluice.dev"},
		[]string{"update projects.sluice.dev lab", "create pods in seminar", "get secrets in seminar", "administer departments/projects.sluice.dev faculty", "manage projects.sluice.dev lab"},
	},
	{
		theEngineer,
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
		theManager,
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
		theHead, // the same, of each project of the department
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
		theDean, // whose the projects are, RBAC does not say: admission does
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
		theSystem,
		[]string{
			"create departments.sluice.dev", "delete projects.sluice.dev", "list projects.sluice.dev", "create nodepools.sluice.dev", "create policies.sluice.dev", "list nodes",
			"administer departments/projects.sluice.dev", "administer departments/projects.sluice.dev faculty", "list usagerecords.sluice.dev", "list notices.sluice.dev",
			"list pods in workshop", "update extensions/status.sluice.dev in workshop", "list clusterqueues.kueue.x-k8s.io",
		},
		[]string{"create pods", "delete pods", "create pods/exec", "get secrets", "update nodes", "patch namespaces", "update extensions.sluice.dev", "delete workloadclocks.sluice.dev"},
	},
	{
		aUser, // who is no member of anything
		nil,
		[]string{"list pods", "get projects.sluice.dev lab", "list projects.sluice.dev", "get departments.sluice.dev faculty", "create extensions.sluice.dev", "create projects.sluice.dev"},
	},
}

// What Sluice and the engines own, and by what a pod would slip out, is written by
// nobody, whatever the role.
func nobodyMay() (all []string) {
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
	university(t)
	t.Run("may and may not", rolesMay)
	t.Run("L2 researchers keep to their own", rolesOwn)
	t.Run("what Sluice owns is refused", rolesRefused)
	t.Run("projects by the administrators of their department", rolesProjects)
	t.Run("people and quotas by research managers", rolesManaged)
	t.Run("rights follow the members", rolesFollow)
	t.Run("what is bound is kept", rolesKept)
	t.Run("the namespace is secured", rolesSecured)
}

func rolesMay(t *testing.T) {
	for _, row := range whoMay {
		t.Run(row.who, func(t *testing.T) {
			t.Parallel()
			for _, what := range row.may {
				awaitMay(t, row.who, what, true)
			}
			for _, what := range append(nobodyMay(), row.mayNot...) {
				if allowed, err := may(t.Context(), row.who, what); allowed || err != nil {
					t.Errorf("%s may %s: %v, %v", row.who, what, allowed, err)
				}
			}
		})
	}
}

// rolesOwn: each of the kinds that Kubernetes itself has, as people really use them.
func rolesOwn(t *testing.T) {
	people := map[string]client.Client{}
	for _, who := range []string{theL1, theL2, anotherL2, theEngineer, theDean} {
		people[who] = clientFor(t, as(who))
	}
	workloadsBy := func(who, name string) []client.Object {
		pod := podIn(lab, name)
		job := startsLater(jobOf(lab, name))
		deployment := serviceOf(lab, name, 0)
		for _, object := range []client.Object{pod, job, deployment} {
			if err := people[who].Create(t.Context(), object); err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			t.Cleanup(func() { remove(t, object) })
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
	for _, object := range workloadsBy(theL2, "by-l2") {
		name := fmt.Sprintf("%T", object)
		for what, try := range map[string]func(string, client.Object) error{"change": change, "delete": end} {
			for _, who := range []string{theL2, theL1} {
				if err := try(who, object); err != nil {
					t.Errorf("%s cannot %s a %s of %s: %v", who, what, name, theL2, err)
				}
			}
			err := refused(try(anotherL2, object), "was made by "+theL2)
			if err != nil || !apierrors.IsForbidden(try(anotherL2, object)) {
				t.Errorf("another L2 researcher: %s a %s: %v", what, name, err)
			}
		}
		// Those who stop what is in the way, and those who serve, change what is theirs
		// to change by RBAC alone.
		if err := end(theDean, object); err != nil {
			t.Errorf("the dean cannot delete a %s: %v", name, err)
		}
	}
	for _, object := range workloadsBy(theL1, "by-l1") {
		if err := refused(change(theL2, object), "was made by "+theL1); err != nil {
			t.Errorf("an L2 researcher changes a %T of an L1 researcher: %v", object, err)
		}
	}
	old := podIn(lab, "by-the-cluster")
	create(t, old)
	if err := refused(end(theL2, old), "the own"); err != nil {
		t.Error(err)
	}
	// Nobody takes over what is another's, and what is one's own really goes: with
	// its pods, by Kubernetes' controllers.
	mine := serviceOf(lab, "going", 1)
	if err := people[theL2].Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	pods := func() int {
		list, err := shared.native.CoreV1().Pods(lab).List(t.Context(), metav1.ListOptions{LabelSelector: "app=going"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, func() error {
		if n := pods(); n != 1 {
			return errNotYet("it has a pod", n)
		}
		return nil
	})
	if err := people[theL2].Patch(t.Context(), mine, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))); err != nil {
		t.Errorf("the own number of replicas: %v", err)
	}
	if err := people[theL2].Delete(t.Context(), mine, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := pods(); n > 0 {
			return errNotYet("its pods are gone", n)
		}
		return gone(t.Context(), mine)
	})
}

// serviceOf is a Deployment of so many pods.
func serviceOf(namespace, name string, replicas int32) *appsv1.Deployment {
	template := labelled(name)
	return &appsv1.Deployment{
		ObjectMeta: workloadMeta(namespace, name),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}
}

// rolesRefused: what the table says is tried once for real, by whoever may most.
func rolesRefused(t *testing.T) {
	editor := clientFor(t, as(theEditor))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "open"}}
	role := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "more"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: theEditor}},
	}
	for what, err := range map[string]error{
		"a quota taken away":      editor.Delete(t.Context(), quotaOf(lab, "sluice-dgx"), client.DryRunAll),
		"a quota of one's own":    editor.Create(t.Context(), quotaOf(lab, "own"), client.DryRunAll),
		"a network policy":        editor.Create(t.Context(), policy, client.DryRunAll),
		"a right":                 editor.Create(t.Context(), role, client.DryRunAll),
		"the project":             editor.Patch(t.Context(), project(lab), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"members":[]}}`)), client.DryRunAll),
		"the namespace":           editor.Patch(t.Context(), namespace(lab), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll),
		"a pod's status":          editor.Status().Patch(t.Context(), podIn(lab, "any"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`))),
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

func rolesProjects(t *testing.T) {
	dean := clientFor(t, as(theDean))
	of := func(name, department string) *v1alpha1.Project {
		return project(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = department, nil })
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

// rolesManaged: what those write who look after people and quotas.
func rolesManaged(t *testing.T) {
	awaitMay(t, theManager, "manage projects.sluice.dev "+lab, true)
	awaitMay(t, theHead, "manage projects.sluice.dev "+seminar, true)
	try := func(who, name, change string) error {
		kind := "application/merge-patch+json"
		if strings.HasPrefix(change, "[") {
			kind = "application/json-patch+json"
		}
		return clientFor(t, as(who)).Patch(t.Context(), project(name), client.RawPatch(types.PatchType(kind), []byte(change)), client.DryRunAll)
	}
	joins := func(role v1alpha1.Role) string {
		return fmt.Sprintf(`[{"op": "add", "path": "/spec/members/-", "value": {"kind": "User", "namespace": "", "name": "a-guest", "role": %q}}]`, role)
	}
	const first = `{"spec": {"members": [{"kind": "User", "namespace": "", "name": "a-guest", "role": "l2-researcher"}]}}`
	for what, err := range map[string]error{
		"a viewer":            try(theManager, lab, joins(v1alpha1.RoleViewer)),
		"a researcher":        try(theManager, lab, joins(v1alpha1.RoleL1Researcher)),
		"a researcher, first": try(theHead, seminar, first),
		"a quota of CPU":      try(theManager, lab, `{"spec": {"resources": {"cpu": "4"}}}`),
		"a quota of GPUs":     try(theHead, lab, `{"spec": {"nodePools": [{"name": "dgx", "gpu": {"guaranteed": "500m", "limit": "2"}}]}}`),
		"a limit":             try(theManager, lab, `{"spec": {"workloads": {"train": {"maxRuntime": "6h"}}}}`),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantRefused(t, try(theManager, lab, joins(v1alpha1.RoleEditor)), apierrors.IsInvalid, "more than you may grant", "l1-researcher, l2-researcher, ml-engineer, viewer")
	wantRefused(t, try(theManager, lab, `{"spec": {"members": null}}`), apierrors.IsInvalid, "takes the role editor", "takes the role research-manager")
	wantRefused(t, try(theHead, seminar, `{"spec": {"hold": {"reason": "mine"}}}`), apierrors.IsForbidden, "spec.hold", "department-administrator")
	wantRefused(t, try(theHead, seminar, `{"metadata": {"labels": {"a": "b"}}}`), apierrors.IsForbidden, "metadata.labels")
	wantRefused(t, try(theHead, seminar, `{"metadata": {"finalizers": ["example.org/mine"]}}`), apierrors.IsForbidden, "metadata.finalizers")
	wantRefused(t, try(theManager, seminar, first), apierrors.IsForbidden, "cannot patch resource")
}

func rolesFollow(t *testing.T) {
	shared.governed(t, faculty, "guests", quota("dgx", "0", "1"))
	may := func(who string, want bool) { awaitMay(t, who, "list pods in guests", want) }
	may(theDean, true)
	may(aUser, false)
	changed(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{memberOf(aUser, v1alpha1.RoleViewer)} })
	may(aUser, true)
	awaitMay(t, aUser, "get projects.sluice.dev guests", true)

	for _, role := range []v1alpha1.Role{v1alpha1.RoleResearchManager, v1alpha1.RoleViewer} {
		changed(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{memberOf(aUser, role)} })
		awaitMay(t, aUser, "manage projects.sluice.dev guests", role == v1alpha1.RoleResearchManager)
	}
	awaitMay(t, theHead, "manage projects.sluice.dev guests", true)

	// A move: the one department's people lose their rights, the other's gain them.
	changed(t, "guests", func(p *v1alpha1.Project) { p.Spec.Department = institute })
	may("the-director", true)
	may(theDean, false)
	awaitMay(t, theDean, "get projects.sluice.dev guests", false)
	awaitMay(t, theHead, "manage projects.sluice.dev guests", false)
	may(aUser, true)

	changed(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = nil })
	may(aUser, false)
	awaitMay(t, aUser, "get projects.sluice.dev guests", false)

	// With a project all of its rights go, while its namespace stays for its volumes.
	changed(t, "guests", func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{memberOf(aUser, v1alpha1.RoleViewer)} })
	may(aUser, true)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "guests", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	create(t, claim)
	remove(t, project("guests"))
	t.Cleanup(func() { remove(t, namespace("guests")) })
	may(aUser, false)
	ns := namespace("guests")
	if err := get(t, ns); err != nil || len(ns.Labels[v1alpha1.LabelPodSecurityEnforce]) > 0 {
		t.Errorf("what stays is %v, %v", ns, err)
	}
	for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
		if err := shared.admin.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelProject: "guests"}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprintf("%+v", list), "Items:[]") {
			t.Errorf("left behind: %+v", list)
		}
	}
}

func rolesKept(t *testing.T) {
	binding := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: "sluice:viewer"}}
	}
	b := binding()
	eventually(t, func() error {
		if err := get(t, b); err != nil {
			return err
		}
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: aUser})
		return shared.admin.Update(t.Context(), b)
	})
	awaitMay(t, aUser, "list pods", false)
	if err := shared.admin.Delete(t.Context(), binding()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return get(t, binding()) })
	awaitMay(t, theViewer, "list pods", true)

	// One of that name that somebody made before is left alone, and shown.
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice:viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	create(t, theirs)
	changed(t, seminar, func(p *v1alpha1.Project) { p.Spec.Members = []v1alpha1.Member{memberOf(aUser, v1alpha1.RoleViewer)} })
	eventually(t, func() error {
		p := project(seminar)
		if err := get(t, p); err != nil {
			return err
		}
		return hasCondition(p.Status.Conditions, v1alpha1.ConditionMembersBound, metav1.ConditionFalse, v1alpha1.ReasonBindingRefused)
	})
	if err := get(t, theirs); err != nil || theirs.RoleRef.Name != "view" || len(theirs.Subjects) > 0 {
		t.Errorf("somebody else's binding is %v, %v", theirs, err)
	}
}

// rolesSecured: Pod Security, the network and the quota of CPU and memory.
func rolesSecured(t *testing.T) {
	level := func(want string) {
		t.Helper()
		eventually(t, func() error {
			ns := namespace(seminar)
			if err := get(t, ns); err != nil {
				return err
			}
			if got := ns.Labels[v1alpha1.LabelPodSecurityEnforce]; got != want {
				return errNotYet("the namespace is held to "+want, got)
			}
			return nil
		})
	}
	level("baseline")
	privileged := podIn(seminar, "privileged", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	if err := refused(shared.admin.Create(t.Context(), privileged, client.DryRunAll), "PodSecurity"); err != nil {
		t.Error(err)
	}
	loosen := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))
	if err := refused(shared.admin.Patch(t.Context(), namespace(seminar), loosen), "spec.podSecurity"); err != nil {
		t.Error(err)
	}
	changed(t, seminar, func(p *v1alpha1.Project) {
		p.Spec.PodSecurity = v1alpha1.PodSecurityRestricted
		p.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse("2")), Memory: ptr.To(resource.MustParse("4Gi"))}
	})
	level("restricted")
	changed(t, seminar, func(p *v1alpha1.Project) { p.Spec.PodSecurity = "" })
	level("baseline")

	eventually(t, func() error {
		return get(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: seminar, Name: "sluice-ingress"}})
	})
	eventually(t, func() error {
		q := quotaOf(seminar, "sluice-resources")
		if err := get(t, q); err != nil {
			return err
		}
		if got := q.Status.Hard["requests.cpu"]; got.String() != "2" {
			return errNotYet("2 CPUs are counted", q.Status.Hard)
		}
		return nil
	})
	// A pod that says nothing of CPU and memory comes in, and counts.
	eventually(t, func() error { return shared.admin.Create(t.Context(), podIn(seminar, "plain"), client.DryRunAll) })
	greedy := podIn(seminar, "greedy", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	})
	if err := refused(shared.admin.Create(t.Context(), greedy, client.DryRunAll), "sluice-resources"); err != nil {
		t.Error(err)
	}
}
