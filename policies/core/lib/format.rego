# Formats amounts and lists for messages.
package sluice.lib.format

# gpus formats thousandths of GPUs: "2 GPUs", "1 GPU", "0.5 of a GPU".
gpus(milli) := "1 GPU" if milli == 1000

else := sprintf("%v of a GPU", [milli / 1000]) if {
	milli > 0
	milli < 1000
}

else := sprintf("%v GPUs", [milli / 1000])

# gpus_or_none formats thousandths of GPUs that can be 0: "no GPUs".
gpus_or_none(0) := "no GPUs"

gpus_or_none(milli) := gpus(milli) if milli > 0

# times formats several devices: "2 times 0.5 of a GPU".
times(devices, description) := description if devices == 1

else := sprintf("%d times %s", [devices, description])

# list formats names: "a, b and c", or "none".
list(names) := "none" if count(names) == 0

else := names[0] if count(names) == 1

else := sprintf("%s and %s", [concat(", ", array.slice(names, 0, last)), names[last]]) if last := count(names) - 1

# amount formats thousandths of a CPU, or bytes of another resource, as a quantity.
amount("cpu", value) := sprintf("%d", [value / 1000]) if value % 1000 == 0

else := sprintf("%dm", [value])

amount(name, value) := sprintf("%d%s", [value / size, suffix]) if {
	name != "cpu"
	[size, suffix] := [unit | some unit in binary_units; value % unit[0] == 0][0]
}

binary_units := [[1099511627776, "Ti"], [1073741824, "Gi"], [1048576, "Mi"], [1, ""]]
