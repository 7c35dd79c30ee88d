# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# bash completion for tokensnoop; needs bash-completion.

_tokensnoop()
{
	local cur prev words cword command word output common options
	_init_completion || return

	common="--verbose --help --version"
	output="--format --output --tokens --include-flagged --slo"
	command=trace
	for word in "${words[@]:1:cword-1}"; do
		case $word in
		trace | report | doctor) command=$word ;;
		esac
	done

	case $prev in
	--format)
		mapfile -t COMPREPLY < <(compgen -W "table jsonl json" -- "$cur")
		return
		;;
	-o | --output)
		_filedir
		return
		;;
	--cgroup)
		_filedir -d
		return
		;;
	-p | --pid)
		_pids
		return
		;;
	--comm)
		_pnames
		return
		;;
	--port | --duration | -d | --ring-mb | --slo)
		return
		;;
	esac

	if [[ $cur != -* ]]; then
		if [[ $command == report ]]; then
			_filedir
		elif ((cword == 1)); then
			mapfile -t COMPREPLY < <(compgen -W "trace report doctor" -- "$cur")
		fi
		return
	fi
	case $command in
	trace)
		options="--pid --comm --port --cgroup --no-tls --all --duration --ring-mb $output $common"
		;;
	report)
		options="--port $output $common"
		;;
	doctor)
		options=$common
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
} && complete -F _tokensnoop tokensnoop
