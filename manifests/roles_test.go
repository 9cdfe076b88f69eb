// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/workloadkind"
	"sluice.dev/manifests"
)

// ruleSet are what a role may do: "create jobs.batch".
type ruleSet map[string]bool

// clusterRoles are what is installed for people, with the parts put together as
// Kubernetes does.
func clusterRoles(t *testing.T) map[string]ruleSet {
	t.Helper()
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	var all []rbacv1.ClusterRole
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || !strings.HasPrefix(object.GetName(), "sluice:") {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true); err != nil {
			t.Fatal(err)
		}
		all = append(all, role)
	}
	byName := map[string]ruleSet{}
	for _, role := range all {
		if strings.HasPrefix(role.Name, "sluice:part:") {
			continue
		}
		may := ruleSet{}
		may.addRules(role.Rules)
		if role.AggregationRule != nil {
			for _, wanted := range role.AggregationRule.ClusterRoleSelectors {
				may.addRules(rulesMatching(t, all, &wanted))
			}
		}
		byName[strings.TrimPrefix(role.Name, "sluice:")] = may
	}
	return byName
}

// rulesMatching returns the rules of the parts that a role aggregates; there must be some.
func rulesMatching(t *testing.T, all []rbacv1.ClusterRole, wanted *metav1.LabelSelector) (rules []rbacv1.PolicyRule) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(wanted)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if selector.Matches(labels.Set(all[i].Labels)) {
			rules = append(rules, all[i].Rules...)
		}
	}
	if len(rules) == 0 {
		t.Errorf("no part matches %s", selector)
	}
	return rules
}

func (r ruleSet) addRules(rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r[strings.TrimSuffix(verb+" "+resource+"."+group, ".")] = true
				}
			}
		}
	}
}

// clusterManagedWorkloads are the kinds that pods come from and no role writes: DaemonSets run
// everywhere, and Kueue's Workloads are Kueue's.
var clusterManagedWorkloads = []string{"daemonsets.apps", "workloads.kueue.x-k8s.io"}

// Each kind that Sluice can stop, people can see; and those who run workloads may
// make it.
func TestRolesCoverAllWorkloadKinds(t *testing.T) {
	all := clusterRoles(t)
	for _, kind := range workloadkind.All() {
		resource := strings.TrimSuffix(kind.Resource+"."+kind.Group, ".")
		ours := slices.Contains(clusterManagedWorkloads, resource)
		for name, verbs := range map[string][]string{
			"viewer":                   {"get", "list", "watch"},
			"l2-researcher":            {"create", "update", "patch", "delete"},
			"l1-researcher":            {"create", "update", "patch", "delete", "deletecollection"},
			"editor":                   {"create", "update", "patch", "delete", "deletecollection"},
			"department-administrator": {"delete"},
		} {
			for _, verb := range verbs {
				may, want := all[name][verb+" "+resource], !ours || name == "viewer"
				if may != want {
					t.Errorf("%s: %s %s: %v, want %v", name, verb, resource, may, want)
				}
			}
		}
	}
}

// Admission records the creator of each workload and object, by which an L2 researcher's own ones are
// recognized. For pods a policy does. A connection creates no object.
func TestUserWorkloadKindsRecordCreator(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	signed := ruleSet{"create pods": true}
	for _, object := range objects {
		if object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		var configuration admissionv1.MutatingWebhookConfiguration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &configuration, true); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			if !slices.Contains([]string{"workloads.sluice.dev", "objects.sluice.dev", "claims.sluice.dev"}, webhook.Name) {
				continue
			}
			for _, rule := range webhook.Rules {
				signed.addRules([]rbacv1.PolicyRule{{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: []string{"create"}}})
			}
		}
	}
	for right := range clusterRoles(t)["l2-researcher"] {
		connects := slices.Contains(connections, strings.TrimPrefix(right, "create "))
		if strings.HasPrefix(right, "create ") && right != "create extensions.sluice.dev" && !connects && !signed[right] {
			t.Errorf("an L2 researcher may %s, and admission does not record the creator", right)
		}
	}
}

// Rights that no role may have.
func TestRolesDenyForbiddenRules(t *testing.T) {
	writing := []string{"create", "update", "patch", "delete", "deletecollection"}
	forbidden := map[string][]string{}
	for _, resource := range []string{
		// What Sluice and the engines keep.
		"resourcequotas", "limitranges", "networkpolicies.networking.k8s.io", "priorityclasses.scheduling.k8s.io",
		"localqueues.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io",
		"workloads.kueue.x-k8s.io", "queues.scheduling.run.ai", "podgroups.scheduling.run.ai",
		"workloadclocks.sluice.dev", "notices.sluice.dev", "usagerecords.sluice.dev", "gpunodes.sluice.dev",
		"projects/status.sluice.dev", "departments/status.sluice.dev", "workloadclocks/status.sluice.dev",
		// What passes by the ways in which a pod is governed.
		"pods/status", "pods/binding", "bindings", "pods/eviction", "pods/ephemeralcontainers", "pods/resize", "pods/proxy",
		"daemonsets.apps", "jobs/status.batch", "nodes", "nodes/status", "nodes/proxy", "namespaces", "events",
		// What gives rights.
		"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
		"serviceaccounts", "serviceaccounts/token", "certificatesigningrequests.certificates.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	} {
		forbidden[resource] = writing
	}
	// A mail administrator sends test mail, and sends Notices again.
	exceptions := map[string][]string{"mail-administrator": {"create notices.sluice.dev", "patch notices.sluice.dev"}}
	all := clusterRoles(t)
	for name, may := range all {
		for resource, verbs := range forbidden {
			for _, verb := range verbs {
				if may[verb+" "+resource] && !slices.Contains(exceptions[name], verb+" "+resource) {
					t.Errorf("%s may %s %s", name, verb, resource)
				}
			}
		}
		for right := range may {
			verb, resource, _ := strings.Cut(right, " ")
			if strings.Contains(right, "*") || slices.Contains([]string{"escalate", "bind", "impersonate", "approve", "sign"}, verb) {
				t.Errorf("%s may %s", name, right)
			}
			// `sluice doctor` reads them, and only an administrator of the system changes them.
			reads := name == "doctor" && slices.Contains([]string{"get", "list"}, verb)
			if resource == "policies.sluice.dev" && name != "system-administrator" && !reads {
				t.Errorf("%s may %s", name, right)
			}
		}
	}
	reading := []string{"editor", "credentials-administrator"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if got, want := all[name]["get secrets"], slices.Contains(reading, name); got != want {
			t.Errorf("%s reads Secrets: %v, want %v", name, got, want)
		}
	}
}

// Every role that requests more time withdraws its own requests, and only owners and administrators delete those of
// others. Guards invariant 4 of the design.
func TestExtensionRightsOfRoles(t *testing.T) {
	for name, may := range clusterRoles(t) {
		requests := may["create extensions.sluice.dev"]
		for _, right := range []string{"delete", "own-only"} {
			if got := may[right+" extensions.sluice.dev"]; got != requests {
				t.Errorf("%s: %s extensions: %v, want %v", name, right, got, requests)
			}
		}
		if got, want := may["others extensions.sluice.dev"], slices.Contains([]string{"owner", "department-administrator", "system-administrator"}, name); got != want {
			t.Errorf("%s deletes others' extensions: %v, want %v", name, got, want)
		}
		if may["deletecollection extensions.sluice.dev"] {
			t.Errorf("%s deletes all extensions at once", name)
		}
	}
}

// A mail administrator has only the rights for mail.
func TestMailAdministrator(t *testing.T) {
	want := ruleSet{}
	for _, verb := range []string{"get", "list", "watch", "create", "patch"} {
		want[verb+" notices.sluice.dev"] = true
	}
	if diff := cmp.Diff(want, clusterRoles(t)["mail-administrator"]); diff != "" {
		t.Errorf("the ClusterRole (-want +got)\n%s", diff)
	}
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	var got []rbacv1.Role
	for _, object := range objects {
		if object.GetKind() != "Role" || !strings.HasPrefix(object.GetName(), "sluice:") || object.GetName() == "sluice:preset-reader" {
			continue
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true); err != nil {
			t.Fatal(err)
		}
		got = append(got, role)
	}
	// By name: all other ConfigMaps there are Sluice's own configuration.
	wanted := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"sluice-mail"}, Verbs: []string{"get", "update", "patch"}}}
	if len(got) != 1 || got[0].Name != "sluice:mail-administrator" || got[0].Namespace != "sluice-system" || cmp.Diff(wanted, got[0].Rules) != "" {
		t.Errorf("Roles: %+v", got)
	}
}

// All users may read the images for submissions, and beside them only presets in Sluice's namespace.
func TestImagesForSubmissionsAreReadable(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	findObject(t, objects, "Role", "sluice-submission", &role)
	findObject(t, objects, "RoleBinding", "sluice-submission", &binding)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"submission"}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(rules, role.Rules); diff != "" || role.Namespace != "sluice-system" || binding.Namespace != role.Namespace {
		t.Errorf("the Role in %s (-want +got)\n%s", role.Namespace, diff)
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}}
	if diff := cmp.Diff(subjects, binding.Subjects); diff != "" || binding.RoleRef.Name != role.Name || binding.RoleRef.Kind != "Role" {
		t.Errorf("the RoleBinding of %s (-want +got)\n%s", binding.RoleRef.Name, diff)
	}
	for _, object := range objects {
		if subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects"); !slices.Contains([]string{binding.Name, "sluice:preset-reader"}, object.GetName()) && strings.Contains(fmt.Sprint(subjects), "system:authenticated") {
			t.Errorf("%s %s is for all users", object.GetKind(), object.GetName())
		}
	}
}

// connections are the subresources by which users connect to a pod.
var connections = []string{"pods/attach", "pods/exec", "pods/portforward"}

// Each role declares to admission whether it may change other users' workloads, and connect to their pods. Every role
// with the right to connect has both verbs: Kubernetes requires get, create or both, depending on version and protocol.
// Guards invariant 4 of the design.
func TestOwnOnlyAccessOfRoles(t *testing.T) {
	for name, may := range clusterRoles(t) {
		if got, want := may["own-only workloads.sluice.dev"], name == "l2-researcher"; got != want {
			t.Errorf("%s keeps to the own: %v, want %v", name, got, want)
		}
		if got, want := may["others workloads.sluice.dev"], slices.Contains([]string{"l1-researcher", "editor", "ml-engineer"}, name); got != want {
			t.Errorf("%s changes others': %v, want %v", name, got, want)
		}
		own, others := slices.Contains([]string{"l2-researcher", "ml-engineer"}, name), slices.Contains([]string{"l1-researcher", "editor"}, name)
		if may["own-only connections.sluice.dev"] != own || may["others connections.sluice.dev"] != others {
			t.Errorf("%s connects to own pods alone: %v, want %v; to others': %v, want %v",
				name, may["own-only connections.sluice.dev"], own, may["others connections.sluice.dev"], others)
		}
		for _, connection := range connections {
			for _, verb := range []string{"get", "create"} {
				if may[verb+" "+connection] != (own || others) {
					t.Errorf("%s may %s %s: %v, want %v", name, verb, connection, may[verb+" "+connection], own || others)
				}
			}
		}
		if own && (may["deletecollection services"] || may["deletecollection secrets"]) {
			t.Errorf("%s deletes all objects at once, which shows no creator", name)
		}
	}
}

// The webhook can read the workloads of all kinds, up to the creator of a pod.
func TestWebhookReadsAllWorkloadKinds(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	may := ruleSet{}
	for _, object := range objects {
		if object.GetKind() != "ClusterRole" || object.GetName() != "sluice-webhook" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true); err != nil {
			t.Fatal(err)
		}
		may.addRules(role.Rules)
	}
	if may["get secrets"] {
		t.Error("the webhook reads Secrets")
	}
	for _, kind := range workloadkind.All() {
		resource := strings.TrimSuffix(kind.Resource+"."+kind.Group, ".")
		if !may["get "+resource] && resource != "workloads.kueue.x-k8s.io" { // it controls no pods
			t.Errorf("the webhook may not get %s", resource)
		}
	}
}

// The API server asks the webhook about each connection that a role permits to own pods, and refuses it if the webhook does
// not answer. Services of these users fail closed, too; the objects that merely get a creator or a label do not.
// Guards invariants 2 and 4 of the design.
func TestWebhooksForOwnObjects(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, object := range objects {
		// The two configurations have the same fields, as far as the test reads them.
		if kind := object.GetKind(); kind != "ValidatingWebhookConfiguration" && kind != "MutatingWebhookConfiguration" {
			continue
		}
		var configuration admissionv1.MutatingWebhookConfiguration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			var rules []string
			for _, rule := range webhook.Rules {
				for _, operation := range rule.Operations {
					rules = append(rules, string(operation)+" "+strings.Join(rule.Resources, ","))
				}
			}
			own := len(webhook.MatchConditions) > 0 && strings.Contains(webhook.MatchConditions[0].Expression, `check("own-only")`)
			if own || webhook.Name == "pod-creators.sluice.dev" || webhook.Name == "creator-labels.sluice.dev" || webhook.Name == "affinity.sluice.dev" {
				got[webhook.Name] = string(*webhook.FailurePolicy) + ": " + strings.Join(rules, "; ")
			}
		}
	}
	want := map[string]string{
		"connections.sluice.dev":    "Fail: CONNECT " + strings.Join(connections, ","),
		"affinity.sluice.dev":       "Fail: CREATE pods",
		"pod-creators.sluice.dev":   "Fail: CREATE pods",
		"objects.sluice.dev":        "Ignore: CREATE configmaps,secrets,services",
		"creator-labels.sluice.dev": "Ignore: CREATE pods,replicationcontrollers; CREATE deployments,replicasets,statefulsets; CREATE cronjobs,jobs",
		"own-services.sluice.dev":   "Fail: CREATE services; UPDATE services",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Each role writes the types of presets that docs/platform/roles.md names, with the right on the resource and on the virtual resource
// of the type: neither alone has an effect. Every user reads those in sluice-system, and nothing else there.
func TestPresetRights(t *testing.T) {
	everything := []string{"environment", "datasource", "compute", "template"}
	want := map[string][]string{
		"environment-administrator": {"environment"}, "data-source-administrator": {"datasource"},
		"compute-resource-administrator": {"compute"}, "template-administrator": {"template"},
		"l1-researcher": everything, "editor": everything, "research-manager": everything, "department-administrator": everything,
		"system-administrator": everything,
	}
	for name, may := range clusterRoles(t) {
		for _, presetType := range everything {
			for _, verb := range []string{"create", "update", "delete"} {
				if got := may[verb+" presets/"+presetType+".sluice.dev"]; got != slices.Contains(want[name], presetType) {
					t.Errorf("%s: %s presets/%s: %v", name, verb, presetType, got)
				}
			}
		}
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			if got := may[verb+" presets.sluice.dev"]; got != (len(want[name]) > 0) {
				t.Errorf("%s: %s presets: %v", name, verb, got)
			}
		}
		if may["deletecollection presets.sluice.dev"] {
			t.Errorf("%s deletes all presets at once", name)
		}
	}
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		// The parts are bound in sluice-system, whose ConfigMaps configure Sluice.
		if strings.HasPrefix(object.GetName(), "sluice:part:") && strings.HasSuffix(object.GetName(), "-presets") {
			var part rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &part); err != nil {
				t.Fatal(err)
			}
			for _, rule := range part.Rules {
				ofOthers := slices.ContainsFunc(rule.Resources, func(r string) bool { return r != "presets" && !strings.HasPrefix(r, "presets/") })
				if ofOthers || !slices.Equal(rule.APIGroups, []string{"sluice.dev"}) {
					t.Errorf("%s grants %v", part.Name, rule)
				}
			}
		}
		if object.GetKind() != "Role" || object.GetName() != "sluice:preset-reader" {
			continue
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &role, true); err != nil {
			t.Fatal(err)
		}
		wanted := []rbacv1.PolicyRule{{APIGroups: []string{"sluice.dev"}, Resources: []string{"presets"}, Verbs: []string{"get", "list", "watch"}}}
		if diff := cmp.Diff(wanted, role.Rules); diff != "" || role.Namespace != "sluice-system" {
			t.Errorf("the Role in %s (-want +got)\n%s", role.Namespace, diff)
		}
		return
	}
	t.Error("no user may read the presets of all projects")
}
