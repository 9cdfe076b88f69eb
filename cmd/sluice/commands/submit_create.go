// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
)

// The values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

var dryRunModes = []string{dryRunNone, dryRunClient, dryRunServer}

// creation has the flags of a command that creates objects.
type creation struct {
	dryRun string
	output *outputFlag
}

// addCreationFlags adds --dry-run and -o.
func addCreationFlags(cmd *cobra.Command) *creation {
	c := &creation{dryRun: dryRunNone, output: addTextOutputFlag(cmd)}
	addChoiceFlag(cmd, &c.dryRun, "dry-run", "", "Create nothing: client prints the objects, server lets the cluster check them", dryRunModes)
	return c
}

// run creates objects after the cluster has checked all of them. Then it prints them, and how to go on.
func (o *creation) run(cmd *cobra.Command, c client.Client, objects []*unstructured.Unstructured, next string) error {
	output := cmd.OutOrStdout()
	if o.dryRun == dryRunClient {
		return writeObjects(output, o.output.format, objects)
	}
	if err := checkObjects(cmd.Context(), c, objects); err != nil {
		return err
	}
	created := "would be created"
	if o.dryRun == dryRunNone {
		created = "created"
		if err := createObjects(cmd.Context(), c, objects); err != nil {
			return err
		}
	}
	if o.output.isObject() {
		return writeObjects(output, o.output.format, objects)
	}
	for _, object := range objects {
		fmt.Fprintf(output, "%s %s in namespace %s\n", printer.Sanitize(nameOf(object)), created, printer.Sanitize(object.GetNamespace()))
	}
	if o.dryRun == dryRunNone {
		fmt.Fprint(output, next)
	}
	return nil
}

// submit creates the objects of a request.
func submit(cmd *cobra.Command, c *clusterClient, request *submission.Request, creation *creation) error {
	if err := readImages(cmd.Context(), c, request); err != nil {
		return err
	}
	request.Namespace = c.namespace
	objects, err := submission.Objects(request)
	if err != nil {
		return err
	}
	if creation.dryRun != dryRunClient {
		if others, err := submittedAs(cmd.Context(), c, request.Namespace, request.Name); err != nil {
			return err
		} else if len(others) > 0 {
			return explainExists(others[0], request.Namespace)
		}
	}
	return creation.run(cmd, c, objects, nextSteps(request.Name, request.Namespace, len(request.Ports) > 0))
}

// submittedAs returns the Jobs and Deployments that submit made under a name, such as job/train. The selector of a Service
// does not tell them apart.
func submittedAs(ctx context.Context, c client.Reader, namespace, name string) ([]string, error) {
	var found []string
	for kind, list := range map[string]client.ObjectList{"deployment": &appsv1.DeploymentList{}, "job": &batchv1.JobList{}} {
		made := client.MatchingLabels{submission.LabelInstance: name, v1alpha1.LabelManagedBy: submission.ManagedBy}
		if err := c.List(ctx, list, client.InNamespace(namespace), made); apierrors.IsForbidden(err) {
			continue // a role without this kind
		} else if err != nil {
			return nil, fmt.Errorf("list the workloads of the name %s: %w", name, err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if object, err := meta.Accessor(o); err != nil {
				return err
			} else if object.GetDeletionTimestamp() == nil {
				found = append(found, kind+"/"+object.GetName())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// explainExists returns why no object gets the name of another one.
func explainExists(existing, namespace string) error {
	return fmt.Errorf("%s exists in namespace %s: choose another name, or delete it with sluice delete %s", existing, namespace, existing)
}

// connectForSubmission returns a client for the namespace of the flags. A dry run of the client needs a cluster only if
// it reads from one: the namespace of a project, presets or images.
func (f *workloadFlags) connectForSubmission(cmd *cobra.Command, dryRun string, reads bool) (*clusterClient, error) {
	if dryRun == dryRunClient && f.project == "" && !reads {
		return &clusterClient{namespace: *f.Namespace}, nil
	}
	c, err := f.connect(cmd)
	if err != nil {
		return nil, err
	}
	return c, f.selectNamespace(cmd.Context(), c)
}

// readImages reads the images of the init containers that a request needs.
func readImages(ctx context.Context, c client.Reader, request *submission.Request) error {
	if len(request.MissingImages()) == 0 {
		return nil
	}
	var images corev1.ConfigMap
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: submission.ImagesConfigMap}
	if err := c.Get(ctx, key, &images); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the images of init containers: %w", err)
	}
	request.Images = images.Data
	return nil
}

// checkObjects lets the cluster check all objects, without creating any.
func checkObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	var problems []error
	for _, object := range objects {
		if err := c.Create(ctx, object.DeepCopy(), client.DryRunAll, client.FieldOwner(v1alpha1.FieldManagerCLI)); err != nil {
			problems = append(problems, explainRefusal(err, object))
		}
	}
	return errors.Join(problems...)
}

// createObjects creates all objects. If one fails, it deletes those before it, or says which stay.
func createObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for i, object := range objects {
		created := object.DeepCopy()
		// The API server gives up after three conflicts with others who use the same ResourceQuota.
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			return c.Create(ctx, created, client.FieldOwner(v1alpha1.FieldManagerCLI))
		})
		if err == nil {
			object.SetUID(created.GetUID())
			continue
		}
		problems := []error{explainRefusal(err, object)}
		for _, earlier := range objects[:i] {
			uid := earlier.GetUID()
			// The deletion also goes ahead after Ctrl-C.
			err := c.Delete(context.WithoutCancel(ctx), earlier, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
			if client.IgnoreNotFound(err) != nil {
				problems = append(problems, fmt.Errorf("%s was created and stays: %w", nameOf(earlier), err))
			}
		}
		return errors.Join(problems...)
	}
	return nil
}

// wrapping is what the API server writes before the text of a webhook or of an admission policy.
var wrapping = regexp.MustCompile(`^(?:admission webhook "[^"]*" denied the request: |[^ ]+ "[^"]*" is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: )`)

var (
	// deniedPods is what the webhook writes before the refusal of a template: the object is named already.
	deniedPods = regexp.MustCompile(`pods of [^ \n]+ [^ \n]+ would be denied: `)
	// templatePath is the path of a template or of a field in it. A pod has the same fields without it.
	templatePath = regexp.MustCompile(`(?m)^spec\.template(?:: |\.spec\.|\.metadata\.)`)
)

// plainRefusal returns the text of a webhook or of an admission policy without what a user of submit does not see.
func plainRefusal(text string) string {
	return templatePath.ReplaceAllString(deniedPods.ReplaceAllString(text, ""), "")
}

// explainRefusal returns why the cluster does not accept an object, and what to do where that is known.
func explainRefusal(err error, object *unstructured.Unstructured) error {
	switch {
	case apierrors.IsAlreadyExists(err) && object.GetKind() == "Preset": // no workload that sluice delete finds
		return fmt.Errorf("%s exists in namespace %s: choose another name, or change it with kubectl edit preset %s -n %s",
			nameOf(object), object.GetNamespace(), object.GetName(), object.GetNamespace())
	case apierrors.IsAlreadyExists(err):
		return explainExists(nameOf(object), object.GetNamespace())
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster has no kind %s: ask its administrator to install the operator of %s", object.GetKind(), object.GroupVersionKind().Group)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("namespace %q does not exist: name your project with --project", object.GetNamespace())
	}
	if text := err.Error(); wrapping.MatchString(text) {
		return fmt.Errorf("%s is refused: %s%s", nameOf(object), plainRefusal(wrapping.ReplaceAllString(text, "")), flagHint(text))
	}
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource ") {
		return fmt.Errorf("your role does not allow %s in namespace %q: %w; `sluice whoami` shows your roles", object.GetKind(), object.GetNamespace(), err)
	}
	return fmt.Errorf("create %s: %w", nameOf(object), err)
}

// flagHints are the flags of submit for what refusals name as a field of the pod.
var flagHints = []struct{ field, flags string }{
	{"annotation " + v1alpha1.AnnotationNodePools, "--node-pools"},
	{"annotations[" + v1alpha1.AnnotationNodePools + "]", "--node-pools"},
	{"annotation " + v1alpha1.AnnotationGPU + " ", "--mig-profile or --gpu"},
	{"priorityClassName sluice-interactive-preemptible", "--preemptible"},
	{"a PersistentVolumeClaim for files", "--pvc or --new-pvc"},
}

// refusedHost matches the admission policy's refusal of the host of an Ingress.
var refusedHost = regexp.MustCompile(`host [^:]*: the department allows ([^;]+);`)

// flagHint names the flag of submit that sets what a refusal says, or is empty.
func flagHint(refusal string) string {
	if hosts := refusedHost.FindStringSubmatch(refusal); hosts != nil && hosts[1] != "none" {
		hint := "; sluice submit: --host"
		if allowed := hosts[1]; !strings.ContainsAny(allowed, " ,*") {
			hint += " " + allowed
		}
		return hint
	}
	for _, hint := range flagHints {
		if strings.Contains(refusal, hint.field) {
			return "; sluice submit: " + hint.flags
		}
	}
	return ""
}

// nameOf returns the name of an object as kubectl writes it.
func nameOf(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}

// nextSteps returns the commands with which a user goes on.
func nextSteps(name, namespace string, hasPorts bool) string {
	of := printer.Sanitize(name)
	where := ""
	if namespace != "" {
		where = " -n " + printer.Sanitize(namespace)
	}
	text := "\nTo see whether it runs: sluice list" + where + "\nTo read its output:     sluice logs " + of + where + "\n"
	if hasPorts {
		text += "To reach it:            sluice port-forward " + of + where + "\n"
	}
	return text
}
