/* Answers CPUID for a program, without some of the processor's instructions; see hidden_instructions.py.
 *
 * Linux can make CPUID raise SIGSEGV (`man 2 arch_prctl`, ARCH_SET_CPUID). The handler asks the processor itself,
 * clears the bits of what is hidden, and continues behind the instruction. Numbers of bits: Intel 64 and IA-32
 * Architectures Software Developer's Manual, volume 2, CPUID, leaf 7.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef ARCH_SET_CPUID
enum { ARCH_SET_CPUID = 0x1012 };
#endif

/* Bits that are cleared, by subleaf of leaf 7 and by register. */
static uint32_t hidden_0_ebx;
static uint32_t hidden_0_ecx;
static uint32_t hidden_0_edx;
static uint32_t hidden_1_eax;
static uint32_t hidden_1_edx;

static uint32_t bit(int number) { return (uint32_t)1 << number; }

/* Of the calling thread; threads that it starts inherit it. */
static long set_cpuid_works(int works) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, works); }

static void answer_cpuid(int signal_number, siginfo_t *information, void *context) {
  (void)information;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *instruction = (const uint8_t *)registers[REG_RIP];
  int is_cpuid = instruction[0] == 0x0f && instruction[1] == 0xa2;
  if (!is_cpuid) { /* a fault of the program: it happens again, and ends the process */
    signal(signal_number, SIG_DFL);
    return;
  }

  uint32_t leaf = (uint32_t)registers[REG_RAX];
  uint32_t subleaf = (uint32_t)registers[REG_RCX];
  uint32_t eax = leaf;
  uint32_t ebx;
  uint32_t ecx = subleaf;
  uint32_t edx;
  set_cpuid_works(1);
  __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  set_cpuid_works(0);

  if (leaf == 7 && subleaf == 0) {
    ebx &= ~hidden_0_ebx;
    ecx &= ~hidden_0_ecx;
    edx &= ~hidden_0_edx;
  }
  if (leaf == 7 && subleaf == 1) {
    eax &= ~hidden_1_eax;
    edx &= ~hidden_1_edx;
  }
  registers[REG_RAX] = eax;
  registers[REG_RBX] = ebx;
  registers[REG_RCX] = ecx;
  registers[REG_RDX] = edx;
  registers[REG_RIP] += 2; /* the length of CPUID */
}

__attribute__((constructor)) static void begin(void) {
  const char *hidden = getenv("HIDDEN_INSTRUCTIONS");
  if (hidden == NULL || *hidden == '\0') {
    return;
  }
  if (strstr(hidden, "avx512")) {
    hidden_0_ebx |= bit(16) | bit(17) | bit(21) | bit(26) | bit(27) | bit(28) | bit(30) | bit(31);
    hidden_0_ecx |= bit(1) | bit(6) | bit(11) | bit(12) | bit(14); /* VNNI is bit 11 */
    hidden_0_edx |= bit(2) | bit(3) | bit(8) | bit(23);            /* float16 is bit 23 */
    hidden_1_eax |= bit(5);                                        /* bfloat16 */
    hidden_1_edx |= bit(19);                                       /* AVX10, which contains AVX-512 */
  }
  if (strstr(hidden, "avx_vnni")) {
    hidden_1_eax |= bit(4);
    hidden_1_edx |= bit(4) | bit(10); /* its forms with other signs */
  }
  if (strstr(hidden, "amx")) {
    hidden_0_edx |= bit(22) | bit(24) | bit(25);
    hidden_1_eax |= bit(21);
    hidden_1_edx |= bit(8); /* products of complex numbers */
  }

  struct sigaction action = {0};
  action.sa_sigaction = answer_cpuid;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, NULL);
  if (set_cpuid_works(0) != 0) {
    fputs("this processor or system cannot hide instructions\n", stderr);
    _exit(1);
  }
}
