// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
)

const (
	clinic      = "clinic"        // the department and its project
	clinicStaff = "clinic-people" // the namespace of the ServiceAccounts whose tokens the roles use
	rolesPage   = "../../docs/platform/roles.md"
	rightsBegin = "<!-- The table is written by `go test ./test/e2e -run TestRightsOfRoles -update`. -->\n"
	rightsEnd   = "<!-- end of the table -->\n"
)

// testedRoles are the roles of the table in docs/platform/roles.md, in its order.
var testedRoles = []string{
	"viewer", "department-viewer", "owner", "l2-researcher", "l1-researcher", "editor", "ml-engineer", "research-manager",
	"department-administrator", "system-administrator", "credentials-administrator", "data-source-administrator", "template-administrator",
	"environment-administrator", "compute-resource-administrator",
}

// person has a role in the clinic, and a token.
type person struct {
	kubernetes.Interface
	role string
	user string
	// pod is a pod of the person: one of the Deployment if the role may create no other.
	pod string
}

func (p person) mine(what string) string { return what + "-of-" + p.role }

// newPeople creates the clinic and a person of each role, with one more L2 researcher under the name other.
func newPeople(t *testing.T) map[string]person {
	t.Helper()
	create(t, newNamespace(clinicStaff))
	people := map[string]person{}
	for _, role := range append([]string{"other"}, testedRoles...) {
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clinicStaff, Name: role}})
		token, err := sharedCluster.clientset.CoreV1().ServiceAccounts(clinicStaff).CreateToken(t.Context(), role, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(sharedCluster.config)
		config.BearerToken, config.WarningHandler, config.QPS = token.Status.Token, rest.NoWarnings{}, -1
		people[role] = person{Interface: kubernetes.NewForConfigOrDie(config), role: role, user: "system:serviceaccount:" + clinicStaff + ":" + role}
	}
	// An owner is a person, and never a ServiceAccount.
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "owner@clinic.example.org", Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	people["owner"] = person{Interface: kubernetes.NewForConfigOrDie(config), role: "owner", user: config.Impersonate.UserName}
	member := func(name string, role v1alpha1.Role) v1alpha1.Member {
		return v1alpha1.Member{Kind: v1alpha1.MemberServiceAccount, Namespace: clinicStaff, Name: name, Role: role}
	}
	create(t, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: clinic}, Spec: v1alpha1.DepartmentSpec{
		NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "1")},
		Members: []v1alpha1.Member{
			member("department-administrator", v1alpha1.RoleDepartmentAdministrator), member("department-viewer", v1alpha1.RoleDepartmentViewer),
		},
	}})
	sharedCluster.createGovernedProject(t, clinic, clinic, newPoolQuota("dgx", "0", "1"))
	updateProjectWithRetry(t, clinic, func(p *v1alpha1.Project) {
		p.Spec.Owners[0].User = people["owner"].user
		p.Spec.Members = []v1alpha1.Member{member("other", v1alpha1.RoleL2Researcher)}
		for _, role := range []v1alpha1.Role{
			v1alpha1.RoleViewer, v1alpha1.RoleL2Researcher, v1alpha1.RoleL1Researcher, v1alpha1.RoleEditor, v1alpha1.RoleMLEngineer, v1alpha1.RoleResearchManager,
		} {
			p.Spec.Members = append(p.Spec.Members, member(string(role), role))
		}
	})
	for _, role := range testedRoles[9:] { // bound by hand
		subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: clinicStaff, Name: role}}
		reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:" + role}
		if role == "system-administrator" {
			create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: clinic}, RoleRef: reference, Subjects: subject})
			continue
		}
		create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: clinic, Name: role}, RoleRef: reference, Subjects: subject})
	}
	for _, role := range append([]string{"other"}, testedRoles[:10]...) {
		eventually(t, func() error {
			_, err := people[role].CoreV1().Pods(clinic).List(t.Context(), metav1.ListOptions{Limit: 1})
			return err
		})
	}
	return people
}

// connect requests a connection to a pod, as clients do by WebSocket (GET) and SPDY (POST), without the upgrade: a
// request that passes authorization and admission fails for lack of it, or of a node. It returns the first other error.
func (p person) connect(ctx context.Context, pod string, subresources ...string) error {
	for _, subresource := range subresources {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			request := p.CoreV1().RESTClient().Verb(method).Namespace(clinic).Resource("pods").Name(pod).SubResource(subresource)
			if subresource == "exec" {
				request.Param("command", "sh").Param("stdout", "true")
			}
			err := request.Do(ctx).Error()
			admitted := apierrors.IsBadRequest(err) &&
				(strings.Contains(err.Error(), "Upgrade request required") || strings.Contains(err.Error(), "does not have a host assigned"))
			if !admitted {
				return fmt.Errorf("%s %s: %w", method, subresource, err)
			}
		}
	}
	return nil
}

var connecting = []string{"attach", "exec", "portforward"}

func newService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: clinic, Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clinic, Name: name}}
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clinic, Name: name}, StringData: map[string]string{"key": "value"}}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: clinic, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

var note = []byte(`{"metadata":{"annotations":{"note":"changed"}}}`)

// makeObjects creates what the person may create, under names of the person's own.
func (p person) makeObjects(ctx context.Context) error {
	core := p.CoreV1()
	_, pod := core.Pods(clinic).Create(ctx, newPod(clinic, p.mine("pod")), metav1.CreateOptions{})
	_, service := core.Services(clinic).Create(ctx, newService(p.mine("service")), metav1.CreateOptions{})
	_, settings := core.ConfigMaps(clinic).Create(ctx, newConfigMap(p.mine("settings")), metav1.CreateOptions{})
	_, secret := core.Secrets(clinic).Create(ctx, newSecret(p.mine("secret")), metav1.CreateOptions{})
	_, claim := core.PersistentVolumeClaims(clinic).Create(ctx, newClaim(p.mine("claim")), metav1.CreateOptions{})
	_, deployment := p.AppsV1().Deployments(clinic).Create(ctx, newServiceDeployment(clinic, p.mine("deployment"), 1), metav1.CreateOptions{})
	for _, err := range []error{pod, service, settings, secret, claim, deployment} {
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}

// deploymentPod returns the name of a pod of the person's Deployment; empty if the person has none.
func (p person) deploymentPod(t *testing.T) (name string) {
	t.Helper()
	if _, err := sharedCluster.clientset.AppsV1().Deployments(clinic).Get(t.Context(), p.mine("deployment"), metav1.GetOptions{}); err != nil {
		return ""
	}
	eventually(t, func() error {
		pods, err := sharedCluster.clientset.CoreV1().Pods(clinic).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + p.mine("deployment")})
		if err == nil && len(pods.Items) != 1 {
			err = unexpectedState("one pod of the Deployment", len(pods.Items))
		}
		if err == nil {
			name = pods.Items[0].Name
		}
		return err
	})
	return name
}

// attempt is a column of the table.
type attempt struct {
	name string
	// creates reports that the request makes an object, so that the target has no meaning.
	creates bool
	// try returns the error of the request. Its target is an object of the person or of another user.
	try func(ctx context.Context, p person, target person) error
}

// attempts are the requests that each role makes for its own objects and those of another L2 researcher.
func attempts() []attempt {
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	patch := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	create := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	attempts := []attempt{
		{name: "exec, attach, port-forward", try: func(ctx context.Context, p, of person) error { return p.connect(ctx, of.pod, connecting...) }},
		{name: "delete a pod", try: func(ctx context.Context, p, of person) error {
			return p.CoreV1().Pods(clinic).Delete(ctx, of.pod, dry)
		}},
		{name: "logs", try: func(ctx context.Context, p, of person) error {
			err := p.CoreV1().Pods(clinic).GetLogs(of.pod, &corev1.PodLogOptions{}).Do(ctx).Error()
			if apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "ContainerCreating") {
				return nil
			}
			return err
		}},
		{name: "change a Service", try: func(ctx context.Context, p, of person) error {
			_, err := p.CoreV1().Services(clinic).Patch(ctx, of.mine("service"), types.MergePatchType, note, patch)
			return err
		}},
		{name: "delete a ConfigMap", try: func(ctx context.Context, p, of person) error {
			return p.CoreV1().ConfigMaps(clinic).Delete(ctx, of.mine("settings"), dry)
		}},
		{name: "read a Secret", try: func(ctx context.Context, p, of person) error {
			_, err := p.CoreV1().Secrets(clinic).Get(ctx, of.mine("secret"), metav1.GetOptions{})
			return err
		}},
		{name: "change a Secret", try: func(ctx context.Context, p, of person) error {
			_, err := p.CoreV1().Secrets(clinic).Patch(ctx, of.mine("secret"), types.MergePatchType, []byte(`{}`), patch)
			return err
		}},
		{name: "delete a volume claim", try: func(ctx context.Context, p, of person) error {
			return p.CoreV1().PersistentVolumeClaims(clinic).Delete(ctx, of.mine("claim"), dry)
		}},
	}
	makes := func(kind string, try func(context.Context, person) error) {
		attempts = append(attempts, attempt{name: "create a " + kind, creates: true, try: func(ctx context.Context, p, _ person) error { return try(ctx, p) }})
	}
	makes("Service", func(ctx context.Context, p person) error {
		_, err := p.CoreV1().Services(clinic).Create(ctx, newService("new"), create)
		return err
	})
	makes("ConfigMap", func(ctx context.Context, p person) error {
		_, err := p.CoreV1().ConfigMaps(clinic).Create(ctx, newConfigMap("new"), create)
		return err
	})
	makes("Secret", func(ctx context.Context, p person) error {
		_, err := p.CoreV1().Secrets(clinic).Create(ctx, newSecret("new"), create)
		return err
	})
	makes("volume claim", func(ctx context.Context, p person) error {
		_, err := p.CoreV1().PersistentVolumeClaims(clinic).Create(ctx, newClaim("new"), create)
		return err
	})
	return attempts
}

// Each role does with a token of its own what docs/platform/roles.md says, and no more. Guards invariant 4 of the design.
func TestRightsOfRoles(t *testing.T) {
	t.Parallel()
	people := newPeople(t)
	for role, p := range people {
		eventually(t, func() error {
			err := p.makeObjects(t.Context())
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		p.pod = p.mine("pod")
		if _, err := sharedCluster.clientset.CoreV1().Pods(clinic).Get(t.Context(), p.pod, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			p.pod = cmp.Or(p.deploymentPod(t), p.pod)
		}
		people[role] = p
	}
	other := people["other"]
	columns := attempts()
	var table strings.Builder
	table.WriteString("\n| role |")
	for _, column := range columns {
		table.WriteString(" " + column.name + " |")
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, role := range testedRoles {
		p := people[role]
		table.WriteString("| `" + role + "` |")
		for _, column := range columns {
			table.WriteString(" " + extentOf(t, column, p, other) + " |")
		}
		table.WriteString("\n")
		if pod := p.deploymentPod(t); pod != "" {
			if err := p.connect(t.Context(), pod, connecting...); err != nil {
				t.Errorf("%s cannot connect to a pod of the own Deployment: %v", role, err)
			}
			expectError(t, other.connect(t.Context(), pod, "exec"), "it was created by "+p.user)
		}
	}
	table.WriteString("\n")
	raw, err := os.ReadFile(rolesPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(raw), rightsBegin)
	_, after, closed := strings.Cut(rest, rightsEnd)
	if !opened || !closed {
		t.Fatalf("%s lacks the two comments that enclose the table", rolesPage)
	}
	text := before + rightsBegin + table.String() + rightsEnd + after
	if *update {
		if err := os.WriteFile(rolesPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := gocmp.Diff(string(raw), text); diff != "" {
		t.Errorf("%s (-page +API server)\n%s", rolesPage, diff)
	}
	t.Run("no L2 researcher passes for another", func(t *testing.T) { testHostileL2(t, people) })
}

// extentOf returns what of a kind the person may do: for all objects, for own ones, or for none.
func extentOf(t *testing.T, column attempt, p, other person) string {
	t.Helper()
	allowed := func(of person) bool {
		err := column.try(t.Context(), p, of)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %s of %s: %v", p.role, column.name, of.role, err)
		}
		return err == nil
	}
	if column.creates {
		if allowed(p) {
			return "yes"
		}
		return "-"
	}
	switch mine, others := allowed(p), allowed(other); {
	case others:
		return "all"
	case mine:
		return "own"
	default:
		return "-"
	}
}

// testHostileL2 tries to pass for another creator in the ways that an L2 researcher's rights permit.
func testHostileL2(t *testing.T, people map[string]person) {
	l2, other, l1 := people["l2-researcher"], people["other"], people["l1-researcher"]
	core := l2.CoreV1()
	label := func(p person) string { return v1alpha1.CreatorLabel(p.user) }
	patchService := func(p person, name, patch string, subresources ...string) (*corev1.Service, error) {
		return p.CoreV1().Services(clinic).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	}
	t.Run("Services select own pods", func(t *testing.T) {
		for _, patch := range []string{
			`{}`, `{"spec":{"selector":{"app":"pod-of-other"}}}`, `{"spec":{"selector":{"sluice.dev/creator":null}}}`,
			`{"spec":{"selector":{"sluice.dev/creator":"` + label(other) + `"}}}`,
		} {
			service, err := patchService(l2, l2.mine("service"), patch)
			if err != nil {
				t.Fatal(err)
			}
			if got := service.Spec.Selector[v1alpha1.LabelCreator]; got != label(l2) {
				t.Errorf("%s: the selector has %q", patch, got)
			}
		}
		forged := newService("forged")
		forged.Spec.Selector = map[string]string{v1alpha1.LabelCreator: label(other)}
		forged.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: other.user}
		service, err := core.Services(clinic).Create(t.Context(), forged, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if service.Spec.Selector[v1alpha1.LabelCreator] != label(l2) || service.Annotations[v1alpha1.AnnotationCreatedBy] != l2.user {
			t.Errorf("the forged Service has %v and %v", service.Spec.Selector, service.Annotations)
		}
		_, err = patchService(l2, "forged", `{"metadata":{"annotations":{"sluice.dev/created-by":"`+other.user+`"}}}`)
		expectError(t, err, "names the creator and does not change afterwards")
		_, err = patchService(l2, other.mine("service"), `{"spec":{"selector":{"app":"x"}}}`)
		expectError(t, err, "was created by "+other.user)
		// The creator of a Service of a ServiceAccount with another role is not recorded, and no user claims it.
		_, err = patchService(l2, l1.mine("service"), `{"spec":{"selector":{"app":"x"}}}`)
		expectError(t, err, "was created by an unknown user")
		_, err = patchService(l2, l1.mine("service"), `{"metadata":{"annotations":{"sluice.dev/created-by":"`+l2.user+`"}}}`)
		expectError(t, err, "names the creator and does not change afterwards")
		_, err = patchService(l2, l2.mine("service"), `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`, "status")
		expectError(t, err, "services/status")
		if _, err := patchService(l1, l2.mine("service"), `{"spec":{"sessionAffinity":"ClientIP"}}`); err != nil {
			t.Errorf("an L1 researcher changes a Service of another: %v", err)
		}
	})
	t.Run("the Service selects the pod and the Deployment of its creator", func(t *testing.T) {
		for _, p := range []person{l2, other} {
			pod, err := sharedCluster.clientset.CoreV1().Pods(clinic).Get(t.Context(), p.deploymentPod(t), metav1.GetOptions{})
			if err != nil || pod.Labels[v1alpha1.LabelCreator] != label(p) {
				t.Errorf("%v, %v", pod.Labels, err)
			}
			bare, err := sharedCluster.clientset.CoreV1().Pods(clinic).Get(t.Context(), p.mine("pod"), metav1.GetOptions{})
			if err != nil || bare.Labels[v1alpha1.LabelCreator] != label(p) {
				t.Errorf("%v, %v", bare.Labels, err)
			}
		}
	})
	t.Run("no pod gets another's label", func(t *testing.T) {
		forged := newPod(clinic, "forged")
		forged.Labels[v1alpha1.LabelCreator] = label(other)
		created, err := l1.CoreV1().Pods(clinic).Create(t.Context(), forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || created.Labels[v1alpha1.LabelCreator] != label(l1) {
			t.Errorf("an L1 researcher's pod has %v, %v", created.Labels, err)
		}
		_, err = core.Pods(clinic).Patch(t.Context(), l2.mine("pod"), types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"sluice.dev/creator":"`+label(other)+`"}}}`), metav1.PatchOptions{})
		expectError(t, err, "set at creation and do not change")
		template := fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"sluice.dev/creator":%q}}}}}`, label(other))
		deployment, err := l2.AppsV1().Deployments(clinic).Patch(t.Context(), l2.mine("deployment"), types.MergePatchType, []byte(template), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { // its pods are refused
			now, err := l2.AppsV1().Deployments(clinic).Get(t.Context(), deployment.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range now.Status.Conditions {
				if condition.Type == appsv1.DeploymentReplicaFailure && strings.Contains(condition.Message, "is not the label of "+l2.user) {
					return nil
				}
			}
			return unexpectedState("the pods of the Deployment are refused", now.Status.Conditions)
		})
	})
	t.Run("connections", func(t *testing.T) {
		// A controller reference, on a new pod and on an own one.
		owned := newPod(clinic, "owned")
		set, err := sharedCluster.clientset.AppsV1().ReplicaSets(clinic).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + other.mine("deployment")})
		if err != nil || len(set.Items) == 0 {
			t.Fatal(set, err)
		}
		owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&set.Items[0], appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		if _, err := core.Pods(clinic).Create(t.Context(), owned, metav1.CreateOptions{}); err == nil {
			t.Error("a user's pod has a controller")
		}
		// The creator of another's pod is changed, or claimed.
		for _, pod := range []string{other.mine("pod"), other.deploymentPod(t)} {
			_, err = core.Pods(clinic).Patch(t.Context(), pod, types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"sluice.dev/created-by":"`+l2.user+`"}}}`), metav1.PatchOptions{})
			if err == nil {
				t.Errorf("an L2 researcher becomes the creator of pod %s", pod)
			}
			expectError(t, l2.connect(t.Context(), pod, "exec"), "it was created by "+other.user)
		}
		expectError(t, l2.connect(t.Context(), other.mine("pod"), "exec"), "you cannot connect to pod "+other.mine("pod")+": it was created by "+other.user)
		// Impersonation needs a right that no role has.
		config := rest.CopyConfig(sharedCluster.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: l2.user, Groups: []string{"system:authenticated", "system:serviceaccounts"}}
		impersonated := person{Interface: kubernetes.NewForConfigOrDie(config), role: l2.role, user: l2.user}
		expectError(t, impersonated.connect(t.Context(), other.mine("pod"), "exec"), "it was created by "+other.user)
		err = core.RESTClient().Get().SetHeader("Impersonate-User", other.user).Namespace(clinic).Resource("pods").Do(t.Context()).Error()
		expectError(t, err, "cannot impersonate")
		for _, subresource := range []string{"proxy", "ephemeralcontainers"} {
			err := core.RESTClient().Get().Namespace(clinic).Resource("pods").Name(l2.mine("pod")).SubResource(subresource).Do(t.Context()).Error()
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", subresource, err)
			}
		}
		err = core.RESTClient().Get().Namespace(clinic).Resource("services").Name(l2.mine("service")).SubResource("proxy").Do(t.Context()).Error()
		if !apierrors.IsForbidden(err) {
			t.Errorf("services/proxy: %v", err)
		}
	})
}

// Anna of the sample starts a notebook, gives it a Secret, a volume and an address, reaches it and deletes all of it, as
// herself. docs/platform/roles.md shows the Service.
func TestAnnaReachesHerNotebook(t *testing.T) {
	t.Parallel()
	const namespace, user = "thesis-mueller", "anna.mueller@example.org"
	as := func(arguments ...string) []string {
		return append([]string{"--as", user, "--as-group", "system:authenticated", "-n", namespace}, arguments...)
	}
	sharedCluster.mustKubectl(t, as("run", "my-notebook", "--image=quay.io/jupyter/minimal-notebook:2025-10-20", "--labels=app=my-notebook", "--port=8888")...)
	sharedCluster.mustKubectl(t, as("create", "secret", "generic", "my-token", "--from-literal=token=value")...)
	sharedCluster.mustKubectl(t, as("create", "configmap", "my-settings", "--from-literal=key=value")...)
	sharedCluster.mustKubectl(t, as("create", "service", "clusterip", "my-notebook", "--tcp=8888")...)
	raw, err := os.ReadFile(rolesPage)
	if err != nil {
		t.Fatal(err)
	}
	selector := sharedCluster.mustKubectl(t, as("get", "service", "my-notebook", "-o", "jsonpath={.spec.selector}")...)
	if !strings.Contains(string(raw), "\n"+selector+"\n") {
		t.Errorf("%s does not show %s", rolesPage, selector)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "my-notebook"}}
	if err := refresh(t, pod); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"app": "my-notebook", v1alpha1.LabelCreator: v1alpha1.CreatorLabel(user)} {
		if pod.Labels[key] != value {
			t.Errorf("her Service does not select her pod: %v", pod.Labels)
		}
	}
	sharedCluster.mustKubectl(t, as("wait", "--for=condition=Ready", "pod/my-notebook", "--timeout=3m")...)
	if out := sharedCluster.mustKubectl(t, as("exec", "my-notebook", "--", "hostname")...); out != "my-notebook\n" {
		t.Errorf("exec: %q", out)
	}
	if out := sharedCluster.mustKubectl(t, as("logs", "my-notebook")...); !strings.Contains(out, "/lab?token=") {
		t.Errorf("logs: %q", out)
	}
	sharedCluster.mustKubectl(t, as("run", "my-test", "--image=any", "--restart=Never", "--annotations="+failAfter+"=15s")...)
	sharedCluster.mustKubectl(t, as("wait", "--for=condition=Ready", "pod/my-test", "--timeout=3m")...)
	if out := sharedCluster.mustKubectl(t, as("attach", "my-test")...); !strings.Contains(out, "container my-test ended") {
		t.Errorf("attach: %q", out)
	}
	sharedCluster.checkForwardedPort(t, "my-notebook", "8888", as()...)
	if _, err := sharedCluster.kubectl(t.Context(), as("get", "secret", "my-token")...); err == nil {
		t.Error("an L2 researcher reads a Secret")
	}
	sharedCluster.mustKubectl(t, as("delete", "--wait=false", "pod/my-notebook", "pod/my-test", "secret/my-token", "configmap/my-settings", "service/my-notebook")...)
}
