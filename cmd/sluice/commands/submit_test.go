// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/cmd/sluice/submission"
)

// newSubmittedNotebook returns the objects of a notebook with a volume claim and an Ingress.
func newSubmittedNotebook(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	m, err := submission.ParseMount("--new-pvc", "name=scratch,path=/scratch,size=1Gi")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := submission.Objects(&submission.Request{
		Name: "notebook", Namespace: "thesis", Type: "interactive", Image: "jupyter", GPUs: "1", Mounts: []submission.Mount{m},
		Ports: []submission.Port{{Service: 80, Container: 8888}}, ServiceType: submission.Ingress,
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// When an object cannot be created, those before it are deleted; one that cannot be is named. Nothing of another's is touched.
func TestSubmissionIsWholeOrNot(t *testing.T) {
	for name, tt := range map[string]struct {
		failing, undeletable string
		want, left           []string
	}{
		"all":              {"", "", nil, []string{"PersistentVolumeClaim", "Deployment", "Service", "Ingress"}},
		"the first":        {"PersistentVolumeClaim", "", []string{"create persistentvolumeclaim/scratch: disk"}, nil},
		"the last":         {"Ingress", "", []string{"create ingress/notebook: disk"}, nil},
		"and the deletion": {"Ingress", "Service", []string{"create ingress/notebook: disk", "service/notebook was created and stays: disk"}, []string{"Service"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := newSubmittedNotebook(t)
			broken := errors.New("disk")
			c := newFakeClient(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if object.GetObjectKind().GroupVersionKind().Kind == tt.failing {
						return broken
					}
					object.SetUID("uid-" + object.GetUID())
					return c.Create(ctx, object, options...)
				},
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					if object.GetObjectKind().GroupVersionKind().Kind == tt.undeletable {
						return broken
					}
					return c.Delete(ctx, object, options...)
				},
			})
			var got []string
			if err := createObjects(t.Context(), c, objects); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			var left []string
			for _, object := range objects {
				if c.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy()) == nil {
					left = append(left, object.GetKind())
				}
			}
			if diff := cmp.Diff(tt.left, left); diff != "" {
				t.Errorf("objects that are left (-want +got):\n%s", diff)
			}
		})
	}
}

// A refusal has the words of the webhook or the policy without the API server's, and says what to do.
func TestRefusalsOfSubmissions(t *testing.T) {
	objects := newSubmittedNotebook(t)
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for want, err := range map[string]error{
		"deployment/notebook is refused: image jupyter is not allowed (policy registries)": errors.New(
			`admission webhook "templates.sluice.dev" denied the request: pods of Deployment notebook would be denied: image jupyter is not allowed (policy registries)`),
		"deployment/notebook is refused: the pod counts as 8 GPUs (policy core.quota)\ncontainers[0].image: no version (policy no-latest)": errors.New(
			`admission webhook "templates.sluice.dev" denied the request: pods of Deployment notebook would be denied: spec.template: the pod counts as 8 GPUs (policy core.quota)` +
				"\nspec.template.spec.containers[0].image: no version (policy no-latest)"),
		"deployment/notebook is refused: spec.templates[0].image: no version": errors.New( // not the template of a pod
			`admission webhook "templates.sluice.dev" denied the request: pods of Workflow w would be denied: spec.templates[0].image: no version`),
		"deployment/notebook is refused: node pool dgx offers whole GPUs only; use node pool mig: name it in the annotation sluice.dev/node-pools; sluice submit: --node-pools": errors.New(
			`admission webhook "templates.sluice.dev" denied the request: node pool dgx offers whole GPUs only; use node pool mig: name it in the annotation sluice.dev/node-pools`),
		"deployment/notebook is refused: request less, or choose priorityClassName sluice-interactive-preemptible; sluice submit: --preemptible": errors.New(
			`admission webhook "templates.sluice.dev" denied the request: request less, or choose priorityClassName sluice-interactive-preemptible`),
		"deployment/notebook is refused: host (none, which is all hosts): the department allows gpu.example.org; choose one of these, or ask; sluice submit: --host gpu.example.org": errors.New(
			`ingresses.networking.k8s.io "notebook" is forbidden: ValidatingAdmissionPolicy 'sluice-services' with binding 'sluice-services' denied request: host (none, which is all hosts): the department allows gpu.example.org; choose one of these, or ask`),
		"deployment/notebook is refused: host a.org: the department allows *.h2.example.org; choose one of these, or ask; sluice submit: --host": errors.New(
			`admission webhook "a" denied the request: host a.org: the department allows *.h2.example.org; choose one of these, or ask`),
		"deployment/notebook is refused: host a.org: the department allows a.example.org, b.example.org; choose one of these, or ask; sluice submit: --host": errors.New(
			`admission webhook "a" denied the request: host a.org: the department allows a.example.org, b.example.org; choose one of these, or ask`),
		"deployment/notebook is refused: host a.org: the department allows none; choose one of these, or ask": errors.New(
			`admission webhook "a" denied the request: host a.org: the department allows none; choose one of these, or ask`),
		"deployment/notebook is refused: another user's": errors.New(
			`deployments.apps "notebook" is forbidden: ValidatingAdmissionPolicy 'sluice-own-only' with binding 'sluice-own-only' denied request: another user's`),
		"deployment/notebook exists in namespace thesis: choose another name, or delete it with sluice delete deployment/notebook": apierrors.NewAlreadyExists(deployments, "notebook"),
		`namespace "thesis" does not exist: name your project with --project`:                                                      apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "thesis"),
		"the cluster has no kind Deployment: ask its administrator to install the operator of apps":                                &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Deployment"}},
	} {
		if got := explainRefusal(err, objects[at]).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	role := apierrors.NewForbidden(deployments, "notebook", errors.New(`User "a" cannot create resource "deployments" in API group "apps"`))
	if got := explainRefusal(role, objects[at]).Error(); !strings.HasPrefix(got, `your role does not allow Deployment in namespace "thesis"`) {
		t.Errorf("got %s", got)
	}
}

// The API server refuses an object after three conflicts with other users of a ResourceQuota: submit creates it again, and says so
// where the conflicts do not end.
func TestSubmissionToBusyQuota(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "team", errors.New("the object has been modified"))
	for name, tt := range map[string]struct {
		conflicts, left int
		want            string
	}{
		"for a moment": {2, 4, ""},
		"for long": {1000, 0, `create persistentvolumeclaim/scratch: Operation cannot be fulfilled on resourcequotas "team": ` +
			"the object has been modified"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := newSubmittedNotebook(t)
			conflicts := 0
			c := newFakeClient(t, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if conflicts < tt.conflicts {
						conflicts++
						return conflict
					}
					return c.Create(ctx, object, options...)
				},
			})
			got := ""
			if err := createObjects(t.Context(), c, objects); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			left := 0
			for _, object := range objects {
				if c.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy()) == nil {
					left++
				}
			}
			if left != tt.left {
				t.Errorf("%d objects exist, want %d", left, tt.left)
			}
		})
	}
}

func TestPlainWarnings(t *testing.T) {
	var out bytes.Buffer
	for _, line := range []string{"Warning: spec.template: 1 GPU became a slice\n", "Warning: spec.template.spec.x: y\n"} {
		if n, err := (plainWarnings{&out}).Write([]byte(line)); err != nil || n != len(line) {
			t.Errorf("wrote %d of %d, %v", n, len(line), err)
		}
	}
	if want := "Warning: 1 GPU became a slice\nWarning: spec.template.spec.x: y\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A dry run of the client needs no cluster, and prints what kubectl can apply.
func TestSubmitPrintsObjects(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	arguments := []string{"submit", "train", "-i", "python", "-g", "0.5", "-n", "thesis", "--dry-run=client", "--command", "--", "python", "-c", "1"}
	got, err := runCommand(t, PrepareArguments(arguments)...)
	if err != nil || !strings.Contains(got, "namespace: thesis") || !strings.Contains(got, "- python\n        - -c\n") || strings.Contains(got, "status") {
		t.Errorf("%v: %s", err, got)
	}
	arguments = []string{"submit-dist", "mpi", "train", "--workers", "3", "-i", "python", "--dry-run", "client", "-o", "json"}
	got, err = runCommand(t, PrepareArguments(arguments)...)
	if err != nil || !strings.Contains(got, `"kind": "MPIJob"`) || !strings.Contains(got, `"replicas": 3`) {
		t.Errorf("%v: %s", err, got)
	}
	for _, more := range [][]string{{"--dry-run=client"}, {"--dry-run=server"}, {"-o", "yaml"}} {
		_, err := runCommand(t, append([]string{"submit", "a", "-i", "a", "--attach"}, more...)...)
		if err == nil || err.Error() != "--attach: not with --dry-run or --output, which print objects" {
			t.Errorf("--attach %v: %v", more, err)
		}
	}
	if got, err := runCommand(t, "submit-dist", "mpi", "train", "--workers", "0", "-i", "a", "--dry-run=client"); err == nil || !strings.Contains(err.Error(), "--workers 0: give a number") {
		t.Errorf("%v: %s", err, got)
	}
	if got, err := runCommand(t, "submit-dist", "horovod", "-i", "a"); err == nil || err.Error() != `framework "horovod": want mpi or pytorch` {
		t.Errorf("%v: %s", err, got)
	}
	// Only submit has this notation.
	for _, arguments := range [][]string{{"exec", "notebook", "--command", "--", "sh"}, {"submit", "a"}, {"--"}} {
		if diff := cmp.Diff(arguments, PrepareArguments(arguments)); diff != "" {
			t.Errorf("%v changes (-want +got):\n%s", arguments, diff)
		}
	}
}
