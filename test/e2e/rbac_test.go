// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
)

// unprivilegedNamespace is a namespace in which no component has rights of its own.
const unprivilegedNamespace = "default"

// Each component has the rights in testdata/rights.yaml, and no others.
func TestComponentRBACMatchesList(t *testing.T) {
	raw, err := os.ReadFile("testdata/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]map[string][]string
	if err := yaml.UnmarshalStrict(raw, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 2 {
		t.Fatalf("the list has %d components", len(list))
	}
	const nobody = "system:serviceaccount:default:nobody"
	baseline := listAccessRules(t, nobody, unprivilegedNamespace)
	ofAll := map[string][]string{} // by namespace
	for _, namespace := range namespacesOf(t) {
		ofAll[namespace] = listAccessRules(t, nobody, namespace)
	}
	for account, byNamespace := range list {
		t.Run(account, func(t *testing.T) {
			user := "system:serviceaccount:" + strings.ReplaceAll(account, "/", ":")
			clusterWide := subtract(listAccessRules(t, user, unprivilegedNamespace), baseline)
			compareRules(t, "cluster-wide", byNamespace[""], clusterWide)
			for namespace, known := range ofAll {
				if namespace == unprivilegedNamespace {
					continue
				}
				local := subtract(listAccessRules(t, user, namespace), slices.Concat(known, clusterWide))
				compareRules(t, "in "+namespace, byNamespace[namespace], local)
			}
		})
	}
}

// No component has these rights.
func TestComponentRBACForbidden(t *testing.T) {
	forbidden := []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets"},
		{Verb: "list", Resource: "secrets", Namespace: "thesis-mueller"},
		{Verb: "create", Resource: "pods", Namespace: "thesis-mueller"},
		{Verb: "update", Resource: "nodes"},
		{Verb: "create", Group: "sluice.dev", Resource: "projects"},
		{Verb: "delete", Group: "sluice.dev", Resource: "departments"},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "cluster-admin"},
		{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "sluice:system-administrator"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "roles"},
		{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "another"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "sluice"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "sluice"},
		{Verb: "create", Resource: "secrets", Namespace: "sluice-system"},
		{Verb: "get", Resource: "secrets", Namespace: "sluice-system", Name: "webhook-certificates"},
		{Verb: "delete", Resource: "persistentvolumeclaims", Namespace: "thesis-mueller"},
		{Verb: "patch", Resource: "persistentvolumeclaims", Namespace: "thesis-mueller"},
		{Verb: "delete", Resource: "persistentvolumes"},
		{Verb: "impersonate", Resource: "users"},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "sluice-system"},
	}
	for _, user := range []string{"system:serviceaccount:sluice-system:webhook", "system:serviceaccount:sluice-system:lifecycle"} {
		for _, attributes := range forbidden {
			review, err := sharedCluster.clientset.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				t.Errorf("%s may %s %s/%s: %s", user, attributes.Verb, attributes.Group, attributes.Resource, review.Status.Reason)
			}
		}
	}
}

// listAccessRules returns the rules that the API server reports to the user for a namespace.
func listAccessRules(t *testing.T, user, namespace string) []string {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := clientset.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string][]string{} // by resource
	for _, rule := range review.Status.ResourceRules {
		for _, resource := range ruleResources(rule) {
			verbs[resource] = append(verbs[resource], rule.Verbs...)
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			verbs[url] = append(verbs[url], rule.Verbs...)
		}
	}
	var rules []string
	for resource, list := range verbs {
		slices.Sort(list)
		rules = append(rules, strings.Join(slices.Compact(list), ",")+" "+resource)
	}
	slices.Sort(rules)
	return rules
}

// ruleResources returns the resources of a rule as resource.group/name.
func ruleResources(rule authorizationv1.ResourceRule) []string {
	var list []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			text := resource
			if group != "" {
				text += "." + group
			}
			if len(rule.ResourceNames) == 0 {
				list = append(list, text)
			}
			for _, name := range rule.ResourceNames {
				list = append(list, text+"/"+name)
			}
		}
	}
	return list
}

func namespacesOf(t *testing.T) []string {
	t.Helper()
	list, err := sharedCluster.clientset.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func subtract(from, removed []string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(right string) bool { return slices.Contains(removed, right) })
}

func compareRules(t *testing.T, where string, want, got []string) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		t.Errorf("%s (-list +cluster)\n%s", where, diff)
	}
}

func killProcess(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// agentClient returns a client with the token of a node's agent.
func agentClient(t *testing.T, node string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(sharedCluster.podDir("gpuagent-"+node), "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: sharedCluster.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An agent writes the status of its own GPUNode only, and never the spec.
func TestAgentWritesOnlyItsOwnNode(t *testing.T) {
	agent := agentClient(t, "dgx-1")
	node := func(name string) *v1alpha1.GPUNode {
		return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"driverVersion":"1.2.3"}}`))
	spec := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodePool":"mine"}}`))
	if err := agent.Status().Patch(t.Context(), node("dgx-1"), status, client.DryRunAll); err != nil {
		t.Errorf("status of its own node: %v", err)
	}
	err := agent.Status().Patch(t.Context(), node("dgx-2"), status)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its own node only: this is dgx-2, and its token is of dgx-1") {
		t.Errorf("status of another node: %v", err)
	}
	for _, name := range []string{"dgx-1", "dgx-2"} {
		if err := agent.Patch(t.Context(), node(name), spec); !apierrors.IsForbidden(err) {
			t.Errorf("spec of %s: %v", name, err)
		}
		if err := agent.Delete(t.Context(), node(name)); !apierrors.IsForbidden(err) {
			t.Errorf("deletion of %s: %v", name, err)
		}
	}
}

// A mail administrator may create test mails, but no other Notices.
func TestOnlyLifecycleRecordsNotices(t *testing.T) {
	const user = "mail-team"
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mail-rights-test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:mail-administrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if err := sharedCluster.adminClient.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, binding) })
	mailTeam := clientFor(t, userConfig(user))
	testNotice := func(name string) *v1alpha1.Notice {
		return &v1alpha1.Notice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NoticeSpec{
				Kind:      v1alpha1.NoticeTest,
				DueAt:     metav1.NewTime(time.Now()),
				Recipient: v1alpha1.NoticeRecipient{Contact: v1alpha1.Contact{Name: "Recipient", Email: "recipient@example.org"}},
			},
		}
	}
	forged := testNotice("forged")
	forged.Spec.Kind = v1alpha1.NoticeProjectDeleted
	forged.Spec.Subject = &v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: "thesis"}

	// The rights take effect a moment after they are granted.
	eventually(t, func() error { return mailTeam.Create(t.Context(), testNotice("tried"), client.DryRunAll) })
	err := mailTeam.Create(t.Context(), forged.DeepCopy(), client.DryRunAll)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only lifecycle creates Notices of this kind") {
		t.Errorf("a forged Notice: %v, want a rejection", err)
	}
	if err := sharedCluster.adminClient.Create(t.Context(), forged, client.DryRunAll); err != nil {
		t.Errorf("a cluster administrator: %v", err)
	}
}
