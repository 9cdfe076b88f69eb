// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Flags are the flags of a submission, with the names of Run:ai's where it has them.
type Flags struct {
	set *pflag.FlagSet

	gpus, gpuMemory, mig, cpu, memory, command, workingDirectory, serviceType, host, maxRuntime string
	environment, arguments, ports, volumes, claims, nodePools, pytorch, presets                 []string
	mounts                                                                                      map[string]*[]string
	localImage, largeShm, interactive, train, inference, preemptible                            bool
	image                                                                                       imageValue
	parallelism, completions, workers                                                           int32
}

// imageValue is the value of --image. It also understands -it, as kubectl and Run:ai have it: since -i is the image
// here, a parser reads it as the image t.
type imageValue struct {
	image      string
	stdin, tty bool
}

// Set sets the image, or both switches.
func (v *imageValue) Set(text string) error {
	if text == "t" {
		v.stdin, v.tty = true, true
		return nil
	}
	v.image = text
	return nil
}

// String returns the image.
func (v *imageValue) String() string { return v.image }

// Type is the value's name in the usage.
func (v *imageValue) Type() string { return "string" }

// AddFlags adds the flags to a set.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set, mounts: map[string]*[]string{}}
	set.StringSliceVar(&f.presets, "preset", nil, "Preset whose fields the other flags do not set; repeat it for more")
	set.VarP(&f.image, "image", "i", "Image of the container; -it is --stdin --tty")
	set.BoolVar(&f.localImage, "local-image", false, "Start the image that the node has; never pull it")
	set.StringVarP(&f.gpus, "gpu", "g", "", "GPUs: a whole number, or a part of one such as 0.5")
	set.StringVar(&f.gpuMemory, "gpu-memory", "", "Memory of one GPU, such as 8G, instead of --gpu")
	set.StringVar(&f.mig, "mig-profile", "", "MIG instance such as 3g.40gb, instead of --gpu")
	set.StringVar(&f.cpu, "cpu", "", "Requested CPUs, such as 4 or 500m")
	set.StringVar(&f.memory, "memory", "", "Requested memory, such as 64Gi")
	set.BoolVar(&f.largeShm, "large-shm", false, "Mount /dev/shm in memory, without the limit of 64 MiB")
	set.StringArrayVarP(&f.environment, "environment", "e", nil, "Variable NAME=VALUE; repeat it for more")
	set.StringVar(&f.command, "command", "", "Command instead of the image's entry point; or --command -- COMMAND ARGUMENTS...")
	set.StringArrayVar(&f.arguments, "args", nil, "Argument of the command or of the entry point; repeat it for more")
	set.StringVar(&f.workingDirectory, "working-dir", "", "Folder in which the command starts")
	set.BoolVar(&f.image.stdin, "stdin", false, "Keep the standard input of the program open, for sluice attach -i")
	set.BoolVarP(&f.image.tty, "tty", "t", false, "Give the program a terminal, for sluice attach -it")
	set.BoolVar(&f.interactive, "interactive", false, "Interactive work, such as a notebook: a Deployment that can be stopped and started")
	set.BoolVar(&f.train, "train", false, "Training, which is the default: a Job")
	set.BoolVar(&f.inference, "inference", false, "Inference: a Deployment")
	set.BoolVar(&f.preemptible, "preemptible", false, "Let interactive work exceed the guaranteed quota, and be preempted first; training always is")
	set.StringSliceVar(&f.ports, "port", nil, "Port of the container such as 8888, or SERVICE:CONTAINER; repeat it for more")
	set.StringVar(&f.serviceType, "service-type", "", "How the ports are reached: portforward, nodeport, ingress or loadbalancer")
	set.StringVar(&f.host, "host", "", "Host of the Ingress, such as notebook.example.org, as the department allows")
	set.StringArrayVarP(&f.volumes, "volume", "v", nil, "Folder of the node at a path of the container: /HOST:/CONTAINER[:ro]")
	set.StringArrayVar(&f.claims, "pvc", nil, "Existing volume claim at a path of the container: NAME:/PATH[:ro]")
	for flag, usage := range map[string]string{
		"--new-pvc":        "New volume claim, which outlives the workload",
		"--host-path":      "Folder of the node, read-only unless readwrite",
		"--nfs":            "Folder of an NFS server, read-only unless readwrite",
		"--configmap-file": "ConfigMap, or one file of it, at a path of the container",
		"--secret-file":    "Secret, or one file of it, at a path of the container",
		"--git-sync":       "Repository that is cloned before the start, with the credentials of a Secret",
		"--s3":             "Objects of a bucket that are copied before the start, with the credentials of a Secret",
	} {
		f.mounts[flag] = set.StringArray(strings.TrimPrefix(flag, "--"), nil, usage+": "+describeKeys(mountKeys[flag]))
	}
	set.Int32Var(&f.parallelism, "parallelism", 0, "Pods of a Job that run at once; each has its number in JOB_COMPLETION_INDEX")
	set.Int32Var(&f.completions, "completions", 0, "Pods of a Job that must succeed (default: those of --parallelism)")
	set.StringSliceVar(&f.nodePools, "node-pools", nil, "Node pools of the project, in the order of preference")
	set.StringVar(&f.maxRuntime, "max-runtime", "", "End the workload after this running time, such as 6h; it can only shorten the project's limit")
	set.StringSliceVar(&f.pytorch, "pytorch", nil, "Distributed training with PyTorch: workers=N makes a PyTorchJob")
	return f
}

// AddWorkersFlag adds --workers for the framework that the command names.
func (f *Flags) AddWorkersFlag() {
	f.set.Int32Var(&f.workers, "workers", 1, "Pods with GPUs")
}

// Presets returns the names of the presets that the command line names.
func (f *Flags) Presets() []string { return f.presets }

// Request returns what a command line asks for, which Objects validates. The arguments are the positional ones; dash is their number before
// the two dashes, or negative. Its flags win over the presets that it names.
func (f *Flags) Request(arguments []string, dash int, presets *Presets) (*Request, error) {
	r, err := f.parse(arguments, dash)
	if err != nil {
		return nil, err
	}
	settings, err := presets.settings(f.presets, f.given(r))
	if err != nil {
		return nil, err
	}
	r.apply(settings)
	if len(arguments) == 0 || dash == 0 {
		r.Name = NewName(r.Image)
	}
	return r, nil
}

// parse returns what the command line says without its presets. Without a flag, the type is empty.
func (f *Flags) parse(arguments []string, dash int) (*Request, error) {
	var rest []string
	if dash >= 0 {
		arguments, rest = arguments[:dash], arguments[dash:]
	}
	r := &Request{
		Image: f.image.image, Stdin: f.image.stdin || f.image.tty, TTY: f.image.tty, LocalImage: f.localImage, GPUs: f.gpus, MIGProfile: v1alpha1.MIGProfile(f.mig), LargeSharedMemory: f.largeShm,
		WorkingDirectory: f.workingDirectory, ServiceType: ServiceType(strings.ToLower(f.serviceType)), Host: f.host, NodePools: f.nodePools,
		Parallelism: f.parallelism, Completions: f.completions, Preemptible: f.preemptible, Workers: f.workers,
	}
	var problems []error
	check := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	switch len(arguments) {
	case 0: // Request gives it a name
	case 1:
		r.Name = arguments[0]
	default:
		check(fmt.Errorf("arguments %q: give one name; arguments of the command follow -- or --args", arguments[1:]))
	}
	if countSet(f.interactive, f.train, f.inference) > 1 {
		check(errors.New("--interactive, --train and --inference: give one of them"))
	} else if f.interactive {
		r.Type = v1alpha1.WorkloadInteractive
	} else if f.inference {
		r.Type = v1alpha1.WorkloadInference
	} else if f.train {
		r.Type = v1alpha1.WorkloadTrain
	}
	check(r.SetCommand(f.set.Changed("command"), f.command, f.arguments, rest))
	var err error
	r.Environment, err = ParseEnvironment(f.environment)
	check(err)
	r.Ports, err = ParsePorts(f.ports)
	check(err)
	check(f.setQuantities(r))
	check(f.setFramework(r))
	if r.ServiceType != "" && !slices.Contains(ServiceTypes, string(r.ServiceType)) {
		check(fmt.Errorf("--service-type %q: want portforward, nodeport, ingress or loadbalancer", f.serviceType))
	}
	if f.maxRuntime != "" {
		d, err := period.ParseDuration(f.maxRuntime)
		if err != nil {
			check(fmt.Errorf("--max-runtime: %w", err))
		}
		r.MaxRuntime = &d
	}
	check(f.setMounts(r))
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return r, nil
}

// The least quantities. A memory below leastBytes lacks its unit: 8 means bytes.
var leastBytes, leastCPU = resource.MustParse("1Mi"), resource.MustParse("1m")

// parseQuantity returns a quantity of at least the least one.
func parseQuantity(text, example string, least resource.Quantity) (resource.Quantity, error) {
	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil || quantity.Sign() <= 0:
		return quantity, fmt.Errorf("%q: want a quantity such as %s", text, example)
	case quantity.Cmp(least) < 0:
		return quantity, fmt.Errorf("%q: want at least %s, such as %s", text, least.String(), example)
	}
	return quantity, nil
}

func (f *Flags) setQuantities(r *Request) error {
	var problems []error
	for _, q := range []struct {
		flag, text, example string
		least               resource.Quantity
		to                  **resource.Quantity
	}{
		{"--gpu-memory", f.gpuMemory, "8G", leastBytes, &r.GPUMemory},
		{"--cpu", f.cpu, "4", leastCPU, &r.CPU},
		{"--memory", f.memory, "64Gi", leastBytes, &r.Memory},
	} {
		if q.text == "" {
			continue
		}
		quantity, err := parseQuantity(q.text, q.example, q.least)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %w", q.flag, err))
			continue
		}
		*q.to = &quantity
	}
	if f.gpus != "" {
		if amount, err := strconv.ParseFloat(f.gpus, 64); err != nil || !(amount >= 0 && amount <= 1000) {
			problems = append(problems, fmt.Errorf("--gpu %q: want a whole number of GPUs, or a part of one such as 0.5", f.gpus))
		}
	}
	return errors.Join(problems...)
}

// setFramework reads --pytorch workers=4.
func (f *Flags) setFramework(r *Request) error {
	if !f.set.Changed("pytorch") {
		return nil
	}
	r.Framework = PyTorch
	for _, pair := range f.pytorch {
		key, value, _ := strings.Cut(pair, "=")
		workers, err := strconv.ParseInt(value, 10, 32)
		if key != "workers" || err != nil {
			return fmt.Errorf("--pytorch %q: want workers=N, such as workers=4", pair)
		}
		r.Workers = int32(workers)
	}
	return nil
}

func (f *Flags) setMounts(r *Request) error {
	var problems []error
	add := func(m Mount, err error) {
		if err != nil {
			problems = append(problems, err)
			return
		}
		r.Mounts = append(r.Mounts, m)
	}
	for _, text := range f.volumes {
		add(ParseVolume(text))
	}
	for _, text := range f.claims {
		add(ParseClaim(text))
	}
	for _, flag := range []string{"--new-pvc", "--host-path", "--nfs", "--configmap-file", "--secret-file", "--git-sync", "--s3"} {
		for _, text := range *f.mounts[flag] {
			add(ParseMount(flag, text))
		}
	}
	return errors.Join(problems...)
}
