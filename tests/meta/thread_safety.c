/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mistakes that clang's thread-safety analysis must refuse. thread_safety.py compiles this file once for each case.
 * Without a case it must compile.
 */
#include "base/lock.h"

struct account {
    struct ngd_mutex lock;
    int balance NGD_GUARDED_BY(lock);
};

int account_read(struct account *account);
void account_add(struct account *account, int amount) NGD_REQUIRES(account->lock);
void account_move(struct account *from, struct account *to, int amount) NGD_EXCLUDES(from->lock, to->lock);

int account_read(struct account *account)
{
    int balance;

    ngd_mutex_lock(&account->lock);
    balance = account->balance;
    ngd_mutex_unlock(&account->lock);
    return balance;
}

void account_add(struct account *account, int amount)
{
    account->balance += amount;
}

void account_move(struct account *from, struct account *to, int amount)
{
    ngd_mutex_lock(&from->lock);
    account_add(from, -amount);
    ngd_mutex_unlock(&from->lock);
    if (!ngd_mutex_trylock(&to->lock))
        return;
    account_add(to, amount);
    ngd_mutex_unlock(&to->lock);
}

#if defined(READ_WITHOUT_LOCK)
int wrong(struct account *account);
int wrong(struct account *account)
{
    return account->balance; /* expect: reading variable 'balance' requires holding */
}
#elif defined(WRITE_AFTER_UNLOCK)
void wrong(struct account *account);
void wrong(struct account *account)
{
    ngd_mutex_lock(&account->lock);
    ngd_mutex_unlock(&account->lock);
    account->balance = 0; /* expect: writing variable 'balance' requires holding */
}
#elif defined(CALL_WITHOUT_LOCK)
void wrong(struct account *account);
void wrong(struct account *account)
{
    account_add(account, 1); /* expect: calling function 'account_add' requires holding mutex 'account->lock' */
}
#elif defined(CALL_WITH_LOCK_OF_ANOTHER_OBJECT)
void wrong(struct account *account, struct account *other);
void wrong(struct account *account, struct account *other)
{
    ngd_mutex_lock(&other->lock);
    account_add(account, 1); /* expect: calling function 'account_add' requires holding mutex 'account->lock' */
    ngd_mutex_unlock(&other->lock);
}
#elif defined(CALL_WITH_EXCLUDED_LOCK)
void wrong(struct account *account, struct account *other);
void wrong(struct account *account, struct account *other)
{
    ngd_mutex_lock(&account->lock);
    account_move(account, other, 1); /* expect: cannot call function 'account_move' while */
    ngd_mutex_unlock(&account->lock);
}
#elif defined(LOCKED_TWICE)
void wrong(struct account *account);
void wrong(struct account *account)
{
    ngd_mutex_lock(&account->lock);
    ngd_mutex_lock(&account->lock); /* expect: acquiring mutex 'account->lock' that is already held */
    ngd_mutex_unlock(&account->lock);
}
#elif defined(KEPT_ON_ONE_PATH)
int wrong(struct account *account);
int wrong(struct account *account)
{
    ngd_mutex_lock(&account->lock);
    if (account->balance == 0)
        return 0;
    ngd_mutex_unlock(&account->lock);
    return 1;
} /* expect: mutex 'account->lock' is not held on every path through here */
#elif defined(UNLOCKED_TWICE)
void wrong(struct account *account);
void wrong(struct account *account)
{
    ngd_mutex_lock(&account->lock);
    ngd_mutex_unlock(&account->lock);
    ngd_mutex_unlock(&account->lock); /* expect: releasing mutex 'account->lock' that was not held */
}
#elif defined(WAIT_WITHOUT_LOCK)
void wrong(struct account *account, struct ngd_cond *cond);
void wrong(struct account *account, struct ngd_cond *cond)
{
    ngd_cond_wait(cond, &account->lock); /* expect: calling function 'ngd_cond_wait' requires holding mutex */
}
#elif defined(TRYLOCK_UNCHECKED)
void wrong(struct account *account);
void wrong(struct account *account)
{
    (void)ngd_mutex_trylock(&account->lock);
    account->balance = 0; /* expect: writing variable 'balance' requires holding */
}
#endif
