"""No function holds an instruction beyond its own level: a compiler may move one above the test that guards it."""
import os
import pathlib
import platform
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DEFT_BUILD", ROOT / "build/release"))
LIBRARY = BUILD / "lib/libdeft.so"

AVX2 = {"sse4", "avx", "avx2", "fma", "f16c", "bmi"}
AVX512 = AVX2 | {"avx512"}
# What Highway compiles a namespace for.
NAMESPACES = {"N_SSE4": {"sse4"}, "N_AVX2": AVX2, "N_AVX3": AVX512}
# What a function attribute of GCC grants.
ATTRIBUTES = {"avx512f": AVX512, "avx512bw": AVX512, "avx512dq": AVX512, "avx512vl": AVX512,
              "avx512bf16": AVX512 | {"avx512_bf16"}, "avx512vnni": AVX512 | {"avx512_vnni"}, "avx2": AVX2, "sse4.1": {"sse4"}}
PEAKS = r"deft::profile::\(anonymous namespace\)::"
# Kernels in assembly, by their names.
ASSEMBLY = [(r"deft_amx_", AVX512 | {"amx"}), (r"deft_avx512_bf16_", AVX512 | {"avx512_bf16"}), (r"deft_avx512_", AVX512),
            (r"deft_avx2_", AVX2), (r"deft_avxvnni_", AVX2 | {"avx_vnni"}), (r"deft_(vnni|dots\d)_", AVX512 | {"avx512_vnni"}),
            (r"deft_far_panels_f32_", AVX512), (r"deft_far_panels_bf16_", AVX512 | {"avx512_bf16"}),
            (r"deft_far_panels_u8s8_", AVX512 | {"avx512_vnni"}),
            # Loops that measure a peak, in profile/peaks.cpp.
            (PEAKS + r"(fma|maddubs)_loop", AVX2), (PEAKS + r"fma_zmm_loop", AVX512), (PEAKS + r"vnni_ymm_loop", AVX2 | {"avx_vnni"}),
            (PEAKS + r"vnni_zmm_loop", AVX512 | {"avx512_vnni"}), (PEAKS + r"bf16_zmm_loop", AVX512 | {"avx512_bf16"}),
            (PEAKS + r"amx_\w+_loop", AVX512 | {"amx"})]
SSE4 = re.compile(r"^(p(min|max)(sb|uw|ud|sd)|pmulld|pmuldq|pblend|blend|round[ps][sd]$|ptest|p(ext|ins)r[bdq]|pmov[sz]x|"
                  r"pcmpeqq|pcmpgtq|packusdw|insertps|extractps|dpp[sd]|mpsadbw|crc32|pshufb|palignr|pabs|psign|phadd|phsub|"
                  r"pmaddubsw|pmulhrsw)")
AVX2_INTEGERS = re.compile(r"^vp(?!testm|ermil|erm2f128)|^v(broadcasti128|inserti128|extracti128|movntdqa|gather|mpsadbw)")


def features_of(mnemonic, operands):
    """The features beyond x86-64's base that one instruction needs, as far as the tiles and vectors are concerned."""
    if mnemonic.startswith(("tdp", "tile", "ldtilecfg", "sttilecfg")):
        return {"amx"}
    wide = "zmm" in operands or re.search(r"%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b|\{%k", operands) is not None
    if re.match(r"vcvtne2?ps2bf16|vdpbf16", mnemonic):
        return {"avx512_bf16"}
    if re.match(r"vpdp(bu|ww|ws|wu|bs)", mnemonic):
        return {"avx512_vnni"} if wide else {"avx_vnni"}
    if mnemonic.startswith("v") and re.search(r"[ps]h$", mnemonic) and not re.match(r"vcvt(ph2ps|ps2ph)", mnemonic):
        return {"avx512_fp16"}
    if wide:
        return {"avx512"}
    if re.match(r"vf(n?madd|n?msub|maddsub|msubadd)", mnemonic):
        return {"fma"}
    if re.match(r"vcvt(ph2ps|ps2ph)", mnemonic):
        return {"f16c"}
    if mnemonic.startswith("v") and not mnemonic.startswith("ver"):
        return {"avx2"} if "ymm" in operands and AVX2_INTEGERS.match(mnemonic) else {"avx"}
    if re.match(r"^(andn|bextr|blsi|blsr|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)$", mnemonic):
        return {"bmi"}
    return {"sse4"} if SSE4.match(mnemonic) else set()


# Most instructions need nothing: what may is found first, quickly.
CANDIDATE = re.compile(r"mm\d|%k[0-7]|>:$|\t(v|tile|tdp|ldtile|sttile|andn|bextr|bls|bzhi|mulx|pdep|pext|rorx|sarx|sh[lr]x|crc32)")


def functions(path):
    """(name, {feature: an instruction}) of each function."""
    run = subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", "-C", path], stdout=subprocess.PIPE, text=True)
    name, found = None, {}
    for line in filter(CANDIDATE.search, run.stdout):
        if line.endswith(">:\n"):
            if name:
                yield name, found
            name, found = line[line.index("<") + 1:-3], {}
        elif (tab := line.find("\t")) >= 0:
            words = line[tab + 1:].split(None, 1)
            while words and words[0] in ("{vex}", "{evex}", "lock", "rep", "repz", "repnz", "notrack", "bnd", "data16"):
                words = words[1].split(None, 1) if len(words) > 1 else []
            for feature in features_of(words[0], words[1].split("#")[0] if len(words) > 1 else "") if words else ():
                found.setdefault(feature, line.strip())
    if name:
        yield name, found
    run.stdout.close()
    if run.wait() != 0:
        raise RuntimeError(f"objdump could not read {path}")


def attributes():
    """Function name -> features, for those that the sources compile for a target of their own."""
    granted = {}
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in (".cpp", ".h"):
            text = path.read_text()
            for match in re.finditer(r'\btarget\("([^"]+)"\)[^;{]*?\b(\w+)\(', text):
                features = [ATTRIBUTES[name] for name in match[1].split(",") if name in ATTRIBUTES]
                if features:
                    granted[match[2]] = set().union(*features)
    return granted


def granted(name, by_attribute):
    for pattern, features in ASSEMBLY:
        if re.match(pattern, name):
            return features
    features = set()
    for namespace, more in NAMESPACES.items():
        if f"::{namespace}::" in name:
            features |= more
    for word in re.findall(r"\w+", name):
        features |= by_attribute.get(word, set())
    return features


@unittest.skipUnless(platform.machine() == "x86_64", "the list of instructions is of x86-64")
class InstructionSets(unittest.TestCase):
    def test_instructions_are_told_apart(self):
        for text, features in (("vcvtneps2bf16 %zmm0,%ymm1", {"avx512_bf16"}), ("vpdpbusd %zmm0,%zmm1,%zmm2", {"avx512_vnni"}),
                               ("vpdpbusd %ymm0,%ymm1,%ymm2", {"avx_vnni"}), ("tdpbf16ps %tmm0,%tmm1,%tmm2", {"amx"}),
                               ("vaddph %zmm0,%zmm1,%zmm2", {"avx512_fp16"}), ("vcvtph2ps %xmm0,%ymm1", {"f16c"}),
                               ("vaddps %xmm0,%xmm17,%xmm1", {"avx512"}), ("vpaddd %ymm0,%ymm1,%ymm2", {"avx2"}),
                               ("vaddps %ymm0,%ymm1,%ymm2", {"avx"}), ("vfmadd231ps %ymm0,%ymm2,%ymm3", {"fma"}),
                               ("pmulld %xmm0,%xmm1", {"sse4"}), ("addps %xmm0,%xmm1", set()), ("verr %ax", set()),
                               ("shlx %rax,%rbx,%rcx", {"bmi"})):
            self.assertEqual(features_of(*text.split(" ")), features, text)

    def test_no_function_holds_one_beyond_its_level(self):
        by_attribute, counts, beyond = attributes(), dict.fromkeys(["sse4", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"], 0), []
        for name, found in functions(LIBRARY):
            for feature, instruction in found.items():
                counts[feature] = counts.get(feature, 0) + 1
                if feature not in granted(name, by_attribute):
                    beyond.append(f"{name[:300]} needs {feature}: {instruction}")
        self.assertEqual(beyond[:20], [], f"{len(beyond)} in all")
        self.assertTrue(all(counts.values()), counts)


class Sources(unittest.TestCase):
    def test_assembly_that_raises_the_level_stays_behind_its_test(self):
        """GCC may move asm that is not volatile above the branch that guards it."""
        for path in (ROOT / "src").rglob("*"):
            if path.suffix in (".cpp", ".h"):
                for match in re.finditer(r'\basm\s*\(\s*"\.arch', path.read_text()):
                    self.fail(f"{path.name}: {match[0]} is not volatile")


if __name__ == "__main__":
    unittest.main()
