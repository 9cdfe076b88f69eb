// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"

	"sluice.dev/test/clustertest"
)

// The projects of both tests may use the presets of manifests/samples/presets/cluster.yaml.
func (s *sluiceCluster) createSamplePresets(t *testing.T) {
	t.Helper()
	presets := readSamplePresets(t, "cluster.yaml")
	for i := range presets {
		// The tests run at the same time, and the presets stay for the other one.
		if err := s.adminClient.Create(t.Context(), &presets[i]); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

func readSamplePresets(t *testing.T, file string) []v1alpha1.Preset {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "manifests", "samples", "presets", file))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(raw), "\n---\n")
	presets := make([]v1alpha1.Preset, len(documents))
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), &presets[i]); err != nil {
			t.Fatal(err)
		}
	}
	return presets
}

// A member creates presets, lists them with those of all projects, and submits with them; flags win, and what does not
// exist is named. Presets never stand in the way of a namespace's deletion.
func TestPresets(t *testing.T) {
	t.Parallel()
	const ns, user, student = "presets", "presets-anna@example.org", "presets-kim@example.org"
	s := sharedCluster
	quota := newPoolQuota("dgx-mig", "500m", "1")
	s.createDepartment(t, ns, quota)
	s.createProjectWithMembers(t, ns, ns, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher, student: v1alpha1.RoleL2Researcher}, quota)
	s.createSamplePresets(t)
	must := func(who string, arguments ...string) string {
		t.Helper()
		out, err := s.sluiceOf(t, who, arguments...)
		if err != nil {
			t.Fatalf("sluice %s: %v %s", strings.Join(arguments, " "), err, out)
		}
		return out
	}
	course := must(user, "preset", "create", "big", "--type", "compute", "-g", "0.5", "-n", ns, "--dry-run=client", "-o", "yaml")
	if !strings.Contains(course, "gpu: 500m") || !strings.Contains(course, "kind: Preset") || strings.Contains(course, "status") {
		t.Errorf("a dry run prints\n%s", course)
	}
	for _, preset := range readSamplePresets(t, "course-ml.yaml") {
		preset.Namespace = ns
		if err := clientFor(t, userConfig(user)).Create(t.Context(), &preset); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(user, "preset", "create", "small", "--type", "compute", "-g", "0.25", "--node-pools", "dgx-mig", "-p", ns); !strings.HasPrefix(out, "preset/small created in namespace presets\n") {
		t.Errorf("printed %s", out)
	}

	list := must(student, "preset", "list", "-p", ns)
	for _, row := range []string{"course Template presets A notebook with the data of the course", "jupyter Environment sluice-system", "small Compute presets"} {
		if !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool { return strings.HasPrefix(strings.Join(strings.Fields(line), " "), row) }) {
			t.Errorf("no row %s in\n%s", row, list)
		}
	}
	if shown := must(student, "preset", "show", "course", "-p", ns); !strings.Contains(shown, "  --gpu 0.25   (small)\n") || !strings.Contains(shown, "  --max-runtime 8h\n") {
		t.Errorf("shows\n%s", shown)
	}
	if names := must(student, "__complete", "submit", "-n", ns, "--preset", "co"); !strings.HasPrefix(names, "course\ncourse-data\n") {
		t.Errorf("completes %s", names)
	}
	if profiles := must(student, "__complete", "submit", "-n", ns, "--mig-profile", "3g."); !strings.HasPrefix(profiles, "3g.20gb\n:4") {
		t.Errorf("completes %s", profiles)
	}

	must(student, "submit", "work", "-p", ns, "--preset", "pytorch,small", "--cpu", "100m", "-g", "0.1", "--command", "--", "python", "-c", "1")
	s.waitForLabelledPods(t, ns, "work", 1)
	var pods corev1.PodList
	if err := s.adminClient.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels{"app.kubernetes.io/instance": "work"}); err != nil || len(pods.Items) == 0 {
		t.Fatal(err)
	}
	c := pods.Items[0].Spec.Containers[0]
	if !strings.HasPrefix(c.Image, "pytorch/pytorch:") || c.Resources.Requests.Cpu().String() != "100m" || pods.Items[0].Annotations[v1alpha1.AnnotationGPU] != "0.1" {
		t.Errorf("image %s, CPU %s, GPU %q", c.Image, c.Resources.Requests.Cpu(), pods.Items[0].Annotations[v1alpha1.AnnotationGPU])
	}
	for want, arguments := range map[string][]string{
		`--preset "jupiter": there is no preset of this name in namespace presets or sluice-system; there are: course, course-data, jupyter, one-gpu, pytorch, small`: {"--preset", "jupiter"},
		"--image: presets jupyter and pytorch set it to different values":                                                                                             {"--preset", "jupyter,pytorch"},
		"job/refused is refused: ": {"--preset", "pytorch,one-gpu"}, // policies decide: the project has no dgx
	} {
		out, err := s.sluiceOf(t, student, append([]string{"submit", "refused", "-p", ns}, arguments...)...)
		if err == nil || !strings.Contains(out, "sluice: "+want) {
			t.Errorf("sluice submit %v: %v %s\nwant %s", arguments, err, out, want)
		}
	}

	gone := newNamespace("presets-gone")
	s.createForTest(t, gone)
	s.createForTest(t, &v1alpha1.Preset{
		ObjectMeta: metav1.ObjectMeta{Namespace: gone.Name, Name: "a"},
		Spec:       v1alpha1.PresetSpec{Type: v1alpha1.PresetCompute, Compute: &v1alpha1.ComputePreset{LargeShm: true}},
	})
	deleteAndWait(t, gone)
}

// withToken returns the configuration of a ServiceAccount with a ClusterRole in its namespace, by a real token.
func (s *sluiceCluster) withToken(t *testing.T, namespace, name, role string) *rest.Config {
	t.Helper()
	s.createForTest(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	s.createForTest(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	token, err := s.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken, config.WarningHandler = token.Status.Token, rest.NoWarnings{}
	return config
}

// newTypedPreset returns the smallest preset of a type.
func newTypedPreset(namespace, name string, presetType v1alpha1.PresetType) *v1alpha1.Preset {
	p := &v1alpha1.Preset{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.PresetSpec{Type: presetType}}
	switch presetType {
	case v1alpha1.PresetEnvironment:
		p.Spec.Environment = &v1alpha1.EnvironmentPreset{Image: "a"}
	case v1alpha1.PresetDataSource:
		volume := v1alpha1.PresetVolume{Path: "/a", PersistentVolumeClaim: &v1alpha1.PresetClaim{ClaimName: "a"}}
		p.Spec.DataSource = &v1alpha1.DataSourcePreset{Volumes: []v1alpha1.PresetVolume{volume}}
	case v1alpha1.PresetCompute:
		p.Spec.Compute = &v1alpha1.ComputePreset{LargeShm: true}
	case v1alpha1.PresetTemplate:
		p.Spec.Presets = []v1alpha1.PresetName{"a"}
	}
	return p
}

// Each role writes the presets of its types and no other, by a real token: a change of the type takes the rights on both. Every
// user reads those of all projects, and only a system administrator writes them.
func TestPresetRoles(t *testing.T) {
	t.Parallel()
	const ns = "preset-roles"
	s := sharedCluster
	quota := newPoolQuota("dgx-mig", "0", "1")
	s.createDepartment(t, ns, quota)
	s.createGovernedProject(t, ns, ns, quota)
	types := []v1alpha1.PresetType{v1alpha1.PresetEnvironment, v1alpha1.PresetDataSource, v1alpha1.PresetCompute, v1alpha1.PresetTemplate}
	for _, presetType := range types {
		s.createForTest(t, newTypedPreset(ns, "old-"+strings.ToLower(string(presetType)), presetType))
	}
	for role, writes := range map[string][]v1alpha1.PresetType{
		"environment-administrator": types[0:1], "data-source-administrator": types[1:2], "compute-resource-administrator": types[2:3],
		"template-administrator": types[3:], "l1-researcher": types, "editor": types, "research-manager": types, "department-administrator": types,
		"l2-researcher": nil, "ml-engineer": nil, "viewer": nil, "owner": nil, "credentials-administrator": nil,
	} {
		t.Run(role, func(t *testing.T) {
			user := clientFor(t, s.withToken(t, ns, role, "sluice:"+role))
			reads := role != "credentials-administrator" // it has no other right
			eventually(t, func() error {                 // the authorizer learns of the binding
				err := user.List(t.Context(), &v1alpha1.PresetList{}, client.InNamespace(ns))
				if !reads && apierrors.IsForbidden(err) {
					return nil
				}
				return err
			})
			expect := func(what string, err error, allowed bool) {
				t.Helper()
				if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
					t.Errorf("%s: %v, want allowed: %v", what, err, allowed)
				}
			}
			for _, presetType := range types {
				allowed := slices.Contains(writes, presetType)
				expect("creates "+string(presetType), user.Create(t.Context(), newTypedPreset(ns, "new", presetType), client.DryRunAll), allowed)
				old := newTypedPreset(ns, "old-"+strings.ToLower(string(presetType)), presetType)
				expect("deletes "+string(presetType), user.Delete(t.Context(), old, client.DryRunAll), allowed)
				for _, other := range types {
					if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
						t.Fatal(err)
					}
					old.Spec = newTypedPreset(ns, "", other).Spec
					old.Spec.Description = "changed"
					expect("changes "+string(presetType)+" to "+string(other), user.Update(t.Context(), old, client.DryRunAll), allowed && slices.Contains(writes, other))
				}
			}
			expect("reads those of all projects", user.List(t.Context(), &v1alpha1.PresetList{}, client.InNamespace(v1alpha1.SystemNamespace)), true)
			expect("writes those of all projects", user.Create(t.Context(), newTypedPreset(v1alpha1.SystemNamespace, "new", types[0]), client.DryRunAll), false)
		})
	}

	// A role of one's own with the resource alone writes nothing, and is told which right is missing.
	s.createForTest(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "preset-writer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group}, Resources: []string{"presets"}, Verbs: []string{"*"}}},
	})
	writer := clientFor(t, s.withToken(t, ns, "writer", "preset-writer"))
	eventually(t, func() error { return writer.List(t.Context(), &v1alpha1.PresetList{}, client.InNamespace(ns)) })
	err := writer.Create(t.Context(), newTypedPreset(ns, "new", types[1]))
	if want := "spec.type: DataSource: system:serviceaccount:preset-roles:writer may not create presets/datasource in namespace preset-roles; " +
		"ask an administrator of the department, or of the cluster, for the role sluice:data-source-administrator"; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}

	const administrator = "preset-administrator"
	s.createForTest(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: administrator},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:system-administrator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: administrator}},
	})
	system := clientFor(t, userConfig(administrator))
	for _, presetType := range types {
		eventually(t, func() error {
			return system.Create(t.Context(), newTypedPreset(v1alpha1.SystemNamespace, "new", presetType), client.DryRunAll)
		})
	}

	// The command line says the same as the API.
	kubeconfig := s.accountKubeconfig(t, ns, "writer")
	command := exec.CommandContext(t.Context(), s.binary, "preset", "create", "tiny", "--type", "compute", "-g", "0.1", "-n", ns, "--kubeconfig", kubeconfig)
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "sluice: preset/tiny is refused: spec.type: Compute: system:serviceaccount:preset-roles:writer may not create presets/compute") {
		t.Errorf("%v: %s", err, out)
	}
}
